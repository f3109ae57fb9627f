// The picture of the trees of one example: drawn whole, moved and zoomed by one transformation.

const SVG = document.getElementById('tree').namespaceURI;
const LEVEL = 48;
const BETWEEN = 56;
const CHARACTER = 7.6;
const LONGEST_LABEL = 18;

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  return filled(made, attributes, children);
}

function svgElement(name, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, name), attributes, children);
}

/** Attributes are set and texts become text nodes, so that nothing of the data is ever read as markup. */
function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(name, value === true ? '' : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

function cut(text) {
  const characters = [...text];
  return characters.length > LONGEST_LABEL ? `${characters.slice(0, LONGEST_LABEL - 1).join('')}…` : text;
}

/**
 * Draws a scene: `parts`, trees side by side in one line or several, each `{tree, labels, names, caption, appears,
 * line}`, under `joint`, a label, where there is one. A node is `{part, node}`; the joint is `{part: -1, node: 0}`.
 */
class TreeView {
  constructor(svg, chosen) {
    this.svg = svg;
    this.chosen = chosen;
    this.paper = svgElement('g');
    svg.append(this.paper);
    this.at = { x: 0, y: 0, zoom: 1 };
    this.pointers = new Map();
    this.listen();
  }

  show(scene) {
    this.scene = scene;
    this.marks = new Map();
    this.measure();  // before anything is drawn, or the browser would have to lay it out twice
    const above = scene.parts.some((part) => part.caption) ? 26 : 0;
    let top = scene.joint === null ? 0 : LEVEL;
    let left = 0;
    this.bottom = 0;
    this.right = 0;
    const edges = svgElement('g');
    const nodes = svgElement('g');
    this.edges = [];
    scene.parts.forEach((part, number) => {
      if (number && part.line !== scene.parts[number - 1].line) {
        top = this.bottom + LEVEL + 20;
        left = 0;
      }
      const widths = part.labels.map((label) => (label === '' ? 12 : Math.max(22, CHARACTER * [...cut(label)].length + 14)));
      const placed = placeNodes(part.tree, widths);
      const room = Math.max(placed.width, 6.6 * part.caption.length);
      const indent = (room - placed.width) / 2;
      part.x = placed.x.map((x) => x + left + indent);
      part.y = part.tree.depth.map((depth) => top + above + depth * LEVEL);
      this.bottom = part.y.reduce((most, y) => Math.max(most, y), this.bottom);
      if (part.caption) {
        nodes.append(svgElement('text', { class: 'caption', x: left + room / 2, y: top - 2 }, part.caption));
      }
      this.drawPart(part, number, widths, edges, nodes);
      this.right = Math.max(this.right, left + room);
      left += room + BETWEEN;
    });
    if (scene.joint !== null) this.drawJoint(edges, nodes);
    this.fit();
    this.step(scene.steps);
    this.current = null;
    this.paper.replaceChildren(edges, nodes);
  }

  /** Learn how large the picture is. */
  measure() {
    const { width, height } = this.svg.getBoundingClientRect();
    this.size = { width, height };
  }

  drawPart(part, number, widths, edges, nodes) {
    const { tree } = part;
    for (let node = tree.count - 1; node >= 0; node -= 1) {
      const parent = tree.parent[node];
      if (parent >= 0) this.drawEdge(edges, part.x[parent], part.y[parent], part.x[node], part.y[node], part.appears[parent]);
      const label = cut(part.labels[node]);
      const shape = label === ''
        ? svgElement('circle', { cx: part.x[node], cy: part.y[node], r: 5 })
        : svgElement('rect', { x: part.x[node] - widths[node] / 2, y: part.y[node] - 13, width: widths[node], height: 26, rx: 7 });
      const text = label === '' ? null : svgElement('text', { x: part.x[node], y: part.y[node] + 1 }, label);
      const name = `${part.names[node]}, height ${tree.height[node]}, ${tree.size[node]} ${tree.size[node] === 1 ? 'node' : 'nodes'}`;
      this.addNode(nodes, { part: number, node }, part.appears[node], name, tree.depth[node] + 1, !tree.arity[node], shape, text);
    }
  }

  drawJoint(edges, nodes) {
    const { parts, joint, steps } = this.scene;
    const roots = parts.map((part) => part.tree.count - 1);
    const places = parts.map((part, number) => part.x[roots[number]]);
    const x = places.reduce((sum, place) => sum + place, 0) / places.length;
    parts.forEach((part, number) => this.drawEdge(edges, x, 0, places[number], part.y[roots[number]], steps));
    const width = Math.max(26, CHARACTER * [...cut(joint)].length + 14);
    const shape = svgElement('rect', { x: x - width / 2, y: -13, width, height: 26, rx: 7 });
    const text = svgElement('text', { x, y: 1 }, cut(joint));
    this.addNode(nodes, { part: -1, node: 0 }, steps, `${joint}, joins the sides`, 1, false, shape, text);
    this.jointX = x;
  }

  drawEdge(edges, x, y, toX, toY, appears) {
    const middle = (y + toY) / 2;
    const path = svgElement('path', { class: 'edge', d: `M${x} ${y + 13}C${x} ${middle + 8} ${toX} ${middle - 8} ${toX} ${toY - 13}` });
    this.edges.push({ path, appears });
    edges.append(path);
  }

  addNode(nodes, place, appears, name, level, leaf, shape, text) {
    const key = `${place.part} ${place.node}`;
    const group = svgElement('g', {
      id: `node-${place.part}-${place.node}`, class: leaf ? 'node leaf' : 'node', role: 'treeitem',
      'aria-label': name, 'aria-level': level, 'aria-selected': 'false',
    }, shape, text);
    this.marks.set(key, { group, appears, place });
    group.dataset.key = key;
    nodes.append(group);
  }

  /** Colour the nodes that have numbers: `numbersOf(part)` are those of a part's nodes, if it has any. */
  colour(numbersOf, scale) {
    for (const { group, place } of this.marks.values()) {
      const numbers = place.part < 0 ? null : numbersOf(this.scene.parts[place.part]);
      const fill = numbers ? heat(Number(numbers[place.node]), scale) : null;
      group.classList.toggle('coloured', fill !== null);
      group.style.setProperty('--fill', fill ?? 'none');
    }
  }

  /** Show the nodes that have been run by a step; those of the step itself stand out while the run goes on. */
  step(step, going = false) {
    for (const { group, appears } of this.marks.values()) {
      group.classList.toggle('later', appears > step);
      group.classList.toggle('now', going && appears === step);
    }
    for (const { path, appears } of this.edges) path.classList.toggle('later', appears > step);
  }

  select(place) {
    const markOf = (other) => other && this.marks.get(`${other.part} ${other.node}`);
    for (const [other, is] of [[this.current, false], [place, true]]) {
      const mark = markOf(other);
      mark?.group.classList.toggle('chosen', is);
      mark?.group.setAttribute('aria-selected', String(is));
    }
    if (markOf(place)) {
      this.svg.setAttribute('aria-activedescendant', `node-${place.part}-${place.node}`);
      this.reveal(place);
    } else {
      this.svg.removeAttribute('aria-activedescendant');
    }
    this.current = place;
  }

  position(place) {
    if (place.part < 0) return { x: this.jointX, y: 0 };
    const part = this.scene.parts[place.part];
    return { x: part.x[place.node], y: part.y[place.node] };
  }

  /** Move the paper, where a node lies outside of what is seen. */
  reveal(place) {
    const { width, height } = this.size;
    const { x, y } = this.position(place);
    const { at } = this;
    const margin = 40;
    const onX = x * at.zoom + at.x;
    const onY = y * at.zoom + at.y;
    at.x += Math.max(0, margin - onX) - Math.max(0, onX - width + margin);
    at.y += Math.max(0, margin - onY) - Math.max(0, onY - height + margin);
    this.move();
  }

  /** The whole scene, or its top where that would be too small to read. */
  fit() {
    const { width, height } = this.size;
    const zoom = Math.min(2, (width - 32) / this.right, (height - 60) / (this.bottom + 10));
    this.at.zoom = zoom < 0.36 ? 0.5 : zoom;
    const middle = this.scene.joint === null ? this.right / 2 : this.jointX;
    const fits = this.right * this.at.zoom < width - 24;
    this.at.x = width / 2 - this.at.zoom * (fits ? this.right / 2 : middle);
    this.at.y = Math.max(30, (height - this.bottom * this.at.zoom) / 2.4);
    this.move();
  }

  zoom(factor, x = null, y = null) {
    const box = this.svg.getBoundingClientRect();
    const onX = x === null ? box.width / 2 : x - box.left;
    const onY = y === null ? box.height / 2 : y - box.top;
    const zoom = Math.min(4, Math.max(0.05, this.at.zoom * factor));
    this.at.x = onX - ((onX - this.at.x) * zoom) / this.at.zoom;
    this.at.y = onY - ((onY - this.at.y) * zoom) / this.at.zoom;
    this.at.zoom = zoom;
    this.move();
  }

  move() {
    const { x, y, zoom } = this.at;
    this.paper.setAttribute('transform', `translate(${x.toFixed(1)} ${y.toFixed(1)}) scale(${zoom.toFixed(4)})`);
  }

  /** The node beside the chosen one: 'up', 'down', 'left' or 'right'. */
  beside(way) {
    const { scene, current } = this;
    const root = (number) => ({ part: number, node: scene.parts[number].tree.count - 1 });
    if (!current) return scene.joint === null ? root(0) : { part: -1, node: 0 };
    if (current.part < 0) return way === 'down' ? root(0) : current;
    const { tree } = scene.parts[current.part];
    if (way === 'up') {
      const parent = tree.parent[current.node];
      if (parent >= 0) return { part: current.part, node: parent };
      return scene.joint === null ? current : { part: -1, node: 0 };
    }
    if (way === 'down') {
      const children = tree.children[current.node];
      return children.length ? { part: current.part, node: children[0] } : current;
    }
    const depth = tree.depth[current.node];
    const row = [];
    scene.parts.forEach((part, number) => {
      for (let node = 0; node < part.tree.count; node += 1) {
        if (part.tree.depth[node] === depth) row.push({ part: number, node });
      }
    });
    const place = row.findIndex((other) => other.part === current.part && other.node === current.node);
    return row[place + (way === 'left' ? -1 : 1)] ?? current;
  }

  listen() {
    const { svg, pointers } = this;
    let moved = 0;
    svg.addEventListener('pointerdown', (event) => {
      if (event.button > 0) return;
      pointers.set(event.pointerId, { x: event.clientX, y: event.clientY });
      if (pointers.size === 1) moved = 0;
    });
    svg.addEventListener('pointermove', (event) => {
      const before = pointers.get(event.pointerId);
      if (!before) return;
      const now = { x: event.clientX, y: event.clientY };
      moved += Math.abs(now.x - before.x) + Math.abs(now.y - before.y);
      if (moved > 4 && !svg.hasPointerCapture(event.pointerId)) {
        svg.setPointerCapture(event.pointerId);
        svg.classList.add('dragging');
      }
      if (pointers.size === 1) {
        this.at.x += now.x - before.x;
        this.at.y += now.y - before.y;
        this.move();
      } else {
        const [other] = [...pointers].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
        const apart = (place) => Math.hypot(place.x - other.x, place.y - other.y) || 1;
        this.zoom(apart(now) / apart(before), (now.x + other.x) / 2, (now.y + other.y) / 2);
      }
      pointers.set(event.pointerId, now);
    });
    for (const name of ['pointerup', 'pointercancel', 'pointerleave']) {
      svg.addEventListener(name, (event) => {
        if (name === 'pointerleave' && svg.hasPointerCapture(event.pointerId)) return;
        pointers.delete(event.pointerId);
        if (!pointers.size) svg.classList.remove('dragging');
      });
    }
    svg.addEventListener('click', (event) => {
      const group = event.target.closest('.node');
      if (group && moved <= 4) this.chosen(this.marks.get(group.dataset.key).place);
    });
    svg.addEventListener('wheel', (event) => {
      event.preventDefault();
      if (event.ctrlKey || event.metaKey) {
        this.zoom(Math.exp(-event.deltaY * 0.004), event.clientX, event.clientY);
      } else {
        this.at.x -= event.shiftKey ? event.deltaY : event.deltaX;
        this.at.y -= event.shiftKey ? 0 : event.deltaY;
        this.move();
      }
    }, { passive: false });
    svg.addEventListener('keydown', (event) => {
      const way = { ArrowUp: 'up', ArrowDown: 'down', ArrowLeft: 'left', ArrowRight: 'right' }[event.key];
      if (!way || event.ctrlKey || event.metaKey || event.altKey) return;
      event.preventDefault();
      this.chosen(this.beside(way));
    });
  }
}
