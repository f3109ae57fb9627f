// The page: which example and node are chosen, what is shown of them, and the keyboard.

const by = (id) => document.getElementById(id);
const PACE = 700;

class Page {
  constructor(data) {
    this.data = data;
    this.pools = {};
    for (const [width, text] of Object.entries(data.pools)) this.pools[width] = new Pool(text, Number(width));
    for (const field of data.fields) field.ofTokens = data.items === 'tokens';
    this.itemName = data.items === 'tokens' ? 'token' : 'node';
    this.trees = new Map();
    this.itemOfRow = this.findItems();
    this.example = -1;
    this.place = null;
    this.timer = null;
    this.tree = new TreeView(by('tree'), (place) => this.chooseInTree(place));
    this.sequences = new SequenceView(by('sequences'), this, (place) => this.choose(place));
    this.details = new Details(by('details'), this);
    this.neighbours = new Neighbours(by('neighbours'), this, (item) => this.go(item));
    this.averages = new Averages(by('averages'), this);
    this.plane = new Plane(by('plane'), this, (example, side) => this.goToEncoding(example, side));
  }

  shortLabel(label) { return this.data.labels[label][1]; }

  fullLabel(label) { return this.data.labels[label][0]; }

  vectors(field, row) {
    return this.data.rows[field.name].slice(row * field.entries, (row + 1) * field.entries);
  }

  attentionPool({ attention }) {
    return new Pool(attention.numbers, attention.positions);
  }

  /** What the positions of attention are called. */
  attentionLabels({ token, attention }) {
    return [...token, ...(attention.mark === null ? [] : [attention.mark])].map((label) => this.shortLabel(label));
  }

  /** What a token attends to most, a fact for each layer. */
  attendedBy(sequence, token) {
    if (!sequence.attention) return [];
    const { layers, positions } = sequence.attention;
    const pool = this.attentionPool(sequence);
    const labels = this.attentionLabels(sequence);
    return Array.from({ length: layers }, (_, layer) => {
      const vector = layer * positions + token;
      const values = pool.values(vector);
      const texts = pool.texts(vector);
      const most = values.map((_value, place) => place).sort((one, other) => values[other] - values[one]).slice(0, 3);
      const said = most.filter((place) => values[place] > 0).map((place) => `${labels[place]} (${place + 1}) ${texts[place]}`);
      return [`${this.data.attendsBy} ${layer + 1} attends to`, said.join(', ') || 'nothing: it did not run'];
    });
  }

  /** Of each row the first item that has it, and how many have it. */
  findItems() {
    const found = [];
    const add = (row, item) => {
      if (found[row]) found[row].count += 1;
      else found[row] = { first: item, count: 1 };
    };
    this.data.examples.forEach((example, number) => {
      example.trees.forEach((tree, part) => tree.row?.forEach((row, node) => add(row, { example: number, part, node })));
      example.sequences.forEach((sequence, part) => sequence.row.forEach((row, token) => add(row, { example: number, part, token })));
    });
    return found;
  }

  treeOf(example, part) {
    const key = `${example} ${part}`;
    if (!this.trees.has(key)) this.trees.set(key, makeTree(this.data.examples[example].trees[part].arity));
    return this.trees.get(key);
  }

  /** What a list of neighbours calls an item: a small subtree in full, a large one by its root. */
  nameOf(item) {
    const example = this.data.examples[item.example];
    if (item.token !== undefined) {
      const { token } = example.sequences[item.part];
      const shown = (place) => (token[place] === undefined ? '' : this.shortLabel(token[place]));
      return `${shown(item.token - 1)} [${shown(item.token)}] ${shown(item.token + 1)}`;
    }
    const tree = this.treeOf(item.example, item.part);
    const { label } = example.trees[item.part];
    if (tree.size[item.node] > 9) return `${this.shortLabel(label[item.node])} … (${tree.size[item.node]} nodes)`;
    const write = (node) => {
      const inner = tree.children[node].map(write).join(', ');
      return this.shortLabel(label[node]) + (inner ? `(${inner})` : '');
    };
    return write(item.node);
  }

  start() {
    const { data } = this;
    by('title').textContent = data.title;
    const options = data.options.filter(([, value]) => value !== 'None' && value !== 'False').map(([name, value]) => `${name} ${value}`);
    by('about').textContent = [`${data.examples.length} ${data.examples.length === 1 ? 'example' : 'examples'}`, data.network, ...options].join(' · ');
    by('tab-details').textContent = data.items === 'tokens' ? 'Token' : 'Node';
    by('sequences').hidden = data.items !== 'tokens';
    by('panes').classList.toggle('with-tokens', data.items === 'tokens');
    this.fillList();
    this.plane.draw();
    by('tab-averages').hidden = !this.averages.gates().length;
    if (!by('tab-averages').hidden) this.averages.draw();
    this.listen();
    this.showFirst();
  }

  /** Begin with the root of the first tree that is more than a leaf, which has states, gates and a stack to show. */
  showFirst() {
    const parts = this.data.examples.map(({ trees }) => trees.findIndex((tree) => tree.row && tree.arity.length > 1));
    const example = Math.max(0, parts.findIndex((part) => part >= 0));
    const part = parts[example];
    this.showExample(example, part < 0 ? null : { part, node: this.treeOf(example, part).count - 1 });
  }

  fillList() {
    this.entries = this.data.examples.map((example, number) => {
      const mark = example.correct === null ? null : element('span', { class: example.correct ? 'mark' : 'mark wrong' }, example.correct ? '✓ correct' : '✗ wrong');
      const entry = element('div', { class: 'example', role: 'option', id: `example-${number}`, 'aria-selected': 'false' },
        element('div', { class: 'text' }, example.text),
        element('div', { class: 'said' }, element('span', {}, example.id), element('b', {}, example.prediction), element('span', {}, example.probability ?? ''), mark));
      entry.addEventListener('click', () => this.showExample(number));
      by('list').append(entry);
      return entry;
    });
    this.filter();
  }

  filter() {
    const wanted = by('filter').value.toLowerCase();
    const verdict = { correct: true, wrong: false, none: null }[by('verdicts').value];
    let shown = 0;
    this.data.examples.forEach((example, number) => {
      const fits = (verdict === undefined || example.correct === verdict)
        && `${example.id} ${example.text} ${example.prediction}`.toLowerCase().includes(wanted);
      this.entries[number].hidden = !fits;
      shown += fits;
    });
    const known = this.data.examples.filter((example) => example.correct !== null);
    const correct = known.filter((example) => example.correct).length;
    const all = `${this.entries.length} ${this.entries.length === 1 ? 'example' : 'examples'}`;
    const listed = shown === this.entries.length ? all : `${shown} of ${all}`;
    by('count').textContent = known.length ? `${listed}; ${correct} of ${known.length} correct` : listed;
    by('none-listed').hidden = shown > 0;
  }

  /** List what fits the filter, and leave an example that is no longer listed for the first that is. */
  filterAndGo() {
    this.filter();
    if (!this.entries[this.example].hidden) return;
    const first = this.entries.findIndex((entry) => !entry.hidden);
    if (first >= 0) this.showExample(first);
  }

  /** The example so many places on among those that are listed. */
  moveExample(places) {
    const listed = this.entries.map((entry, number) => number).filter((number) => !this.entries[number].hidden);
    if (!listed.length) return;
    const place = listed.indexOf(this.example);
    const next = place < 0 ? (places > 0 ? listed.find((number) => number > this.example) ?? listed.at(-1) : listed.findLast((number) => number < this.example) ?? listed[0])
      : listed[Math.min(listed.length - 1, Math.max(0, place + places))];
    this.showExample(next);
  }

  showExample(number, place = null) {
    this.pause();
    if (number !== this.example) {
      this.entries[this.example]?.setAttribute('aria-selected', 'false');
      this.example = number;
      const entry = this.entries[number];
      entry.setAttribute('aria-selected', 'true');
      by('list').setAttribute('aria-activedescendant', entry.id);
      const list = by('list').getBoundingClientRect();
      const own = entry.getBoundingClientRect();
      if (own.top < list.top || own.bottom > list.bottom) by('list').scrollTop += own.top - list.top - list.height / 3;
      this.scene = makeScene(this);
      this.showSummary();
      if (this.data.items === 'tokens') {
        const { sequences } = this.data.examples[number];
        const names = sequences.length > 1 ? ['left', 'right'] : ['tokens'];
        this.sequences.show(sequences, names);
      }
      this.tree.show(this.scene);
      this.showExplanation();
      this.showReplay();
      by('step').max = this.scene.steps;
      this.plane.show(number);
      this.showStep(this.scene.steps, false);
    }
    this.choose(place);
  }

  /** What outputs are divided by before they become probabilities, where that changes them. */
  atTemperature() { return this.data.temperature === null ? '' : ` (temperature ${this.data.temperature})`; }

  showSummary() {
    const example = this.data.examples[this.example];
    const chance = element('span', { class: 'chance', 'aria-hidden': true }, element('i'));
    chance.firstChild.style.width = `${100 * (Number(example.probability) || 0)}%`;
    const isNumber = example.prediction !== 'not a number';
    const said = example.classes.length ? `“${example.prediction}”` : example.prediction;
    const facts = [
      element('span', {}, 'answer ', element('b', {}, example.prediction)),
      example.probability === null ? null : element('span', {}, `probability of ${isNumber ? said : 'the answer'} `, element('b', {}, example.probability), this.atTemperature(), chance),
      example.label === null ? element('span', {}, 'label not known') : element('span', {}, 'label ', element('b', {}, example.label)),
      example.correct === null ? null : element('b', {}, example.correct ? '✓ correct' : '✗ wrong'),
      example.verdict === null ? null : element('span', {}, 'numerical test ', element('b', {}, example.verdict)),
      element('span', {}, `${this.data.group} ${example.group}`),
      example.warning === null ? null : element('b', {}, `⚠ ${example.warning}`),
    ];
    by('summary').replaceChildren(element('div', { class: 'text' }, example.text), element('div', { class: 'facts' }, ...facts.filter(Boolean)));
  }

  /** Colour the nodes by how much they speak for the answer, and say which answer that is. */
  showExplanation() {
    const { explanation } = this.data.examples[this.example];
    by('explanation').hidden = explanation === null;
    if (explanation === null) return;
    const choice = by('colour-by');
    choice.parentElement.hidden = explanation.problem !== undefined;
    if (explanation.problem !== undefined) {
      by('explained').textContent = `⚠ no explanation: ${explanation.problem}`;
      by('colour-legend').replaceChildren();
      return;
    }
    by('explained').replaceChildren(`${explanation.method}: what speaks for `, element('b', {}, explanation.answer), `, value ${explanation.value}`);
    const sizes = explanation.trees.flatMap((tree) => tree[choice.value] ?? []).map((text) => Math.abs(Number(text))).filter(Number.isFinite);
    const scale = { most: Math.max(0, ...sizes) || 1, power: 1, fromZero: false, strength: 0.7 };
    this.tree.colour((part) => part.explained?.[choice.value], scale);
    by('colour-legend').replaceChildren(...(choice.value ? [legendOf(scale, 'purple speaks against the answer, orange for it'), ' against / for'] : []));
  }

  chooseInTree(place) {
    const part = this.scene.parts[place.part];
    if (this.data.items !== 'tokens' || !part) {
      this.choose(place);
      return;
    }
    const token = part.token(place.node);
    this.choose(token < 0 ? place : { part: part.inSequence, token }, place);
  }

  /** Choose a node, a token, the joint of a pair (part -1) or, with null, the example as a whole. */
  choose(place, drawn = null) {
    const pane = document.activeElement.closest('[role="tabpanel"]');
    this.place = place;
    const ofToken = place && place.token !== undefined;
    this.tree.select(ofToken ? drawn ?? this.nodeOfToken(place) : place);
    if (this.data.items === 'tokens') this.sequences.select(ofToken ? place : null);
    const row = this.rowOf(place);
    const [name, facts] = this.about(place);
    this.details.show(name, facts, row, row === null ? this.encodings(place) : []);
    this.neighbours.show(row, name);
    if (pane && !pane.contains(document.activeElement)) pane.focus();  // what had the focus was made anew
  }

  nodeOfToken({ part, token }) {
    const { parts } = this.scene;
    const holds = (number, node) => parts[number].inSequence === part && parts[number].token(node) === token;
    for (let number = parts.length - 1; number >= 0; number -= 1) {
      for (let node = 0; node < parts[number].tree.count; node += 1) {
        if (holds(number, node)) return { part: number, node };
      }
    }
    return null;
  }

  rowOf(place) {
    if (!place || place.part < 0) return null;
    const example = this.data.examples[this.example];
    if (place.token !== undefined) return example.sequences[place.part].row[place.token];
    return this.data.items === 'nodes' ? example.trees[place.part].row[place.node] : null;
  }

  about(place) {
    const example = this.data.examples[this.example];
    if (!place || place.part < 0) {
      const chance = example.probability === null ? '' : `, ${example.probability}${this.atTemperature()}`;
      const facts = [['answer', `${example.prediction}${chance}`]];
      if (example.outputs.length) facts.push(['output', example.outputs.join('  ')]);
      return [place && example.joint !== null ? this.shortLabel(example.joint) : `example ${example.id}`, facts];
    }
    if (place.token !== undefined) {
      const sequence = example.sequences[place.part];
      const label = sequence.token[place.token];
      const facts = [['place', `token ${place.token + 1} of ${sequence.token.length}`]];
      if (this.fullLabel(label) !== this.shortLabel(label)) facts.unshift(['label', this.fullLabel(label)]);
      facts.push(...this.attendedBy(sequence, place.token));
      return [this.shortLabel(label), facts];
    }
    const part = this.scene.parts[place.part];
    const { tree } = part;
    const { node } = place;
    const facts = [['label', part.names[node]], ['height', String(tree.height[node])], ['size', tree.size[node] === 1 ? '1 node' : `${tree.size[node]} nodes`]];
    if (part.explained) {
      const { subtree, score, rank } = part.explained;
      facts.push(['part of the subtree', `${subtree[node]}, rank ${rank[node]}`]);
      facts.push(['part of the node', score[node] === 'NaN' ? 'it has no vector' : score[node]]);
    }
    if (part.words && tree.arity[node]) facts.push(['reads', part.words(node)]);
    if (tree.parent[node] >= 0) {
      const parent = tree.parent[node];
      facts.push(['place', `child ${tree.children[parent].indexOf(node) + 1} of ${tree.arity[parent]} of ${part.labels[parent] || part.names[parent]}`]);
    } else {
      facts.push(['place', example.trees.length > 1 ? `root of the ${part.side ? 'right' : 'left'} side` : 'root']);
    }
    const row = this.rowOf(place);
    const count = row === null ? 1 : this.itemOfRow[row].count;
    if (count > 1) facts.push(['occurs', `${count} times on this page`]);
    return [part.labels[node] || 'constituent', facts];
  }

  /** The encodings of the example, for what shows no node of its own. */
  encodings(place) {
    if (place && place.part >= 0) return [];
    const { width, each, places } = this.data.encodings;
    const own = places.slice(this.example * each, (this.example + 1) * each);
    const values = own.flatMap((vector) => this.pools[width].values(vector)).filter(Number.isFinite);
    const known = this.data.fields.find((field) => field.width === width && field.sort === 'state');
    const field = known ?? { name: 'h', width, low: Math.min(0, ...values), high: Math.max(0, ...values) };
    return [{ title: each > 1 ? 'encodings' : 'encoding', field, places: own, names: each > 1 ? ['left', 'right'] : [''] }];
  }

  go(item) {
    this.showExample(item.example, item.token === undefined ? { part: item.part, node: item.node } : { part: item.part, token: item.token });
    if (item.token === undefined) by('tree').focus();
    else this.sequences.focus();
  }

  goToEncoding(example, side) {
    const root = this.data.items === 'nodes' ? { part: side, node: this.treeOf(example, side).count - 1 } : null;
    this.showExample(example, root);
  }

  /** The buttons of the replay, where the example has steps to go through. */
  showReplay() {
    for (const part of document.querySelectorAll('.replay')) {
      if (!this.scene.isReplayed && part.contains(document.activeElement)) by('tree').focus();
      part.hidden = !this.scene.isReplayed;
    }
  }

  showStep(step, going) {
    this.step = Math.min(this.scene.steps, Math.max(0, step));
    by('step').value = this.step;
    const ofNodes = this.data.items === 'nodes';
    const atJoint = ofNodes && this.scene.joint !== null && this.step === this.scene.steps;
    const text = ofNodes ? `level ${this.step} of ${this.scene.steps}${atJoint ? ': compared' : ''}` : `token ${this.step + 1} of ${this.scene.steps + 1}`;
    by('step-text').textContent = text;
    by('step').setAttribute('aria-valuetext', text);
    this.tree.step(this.step, going);
    if (!ofNodes && this.data.items === 'tokens') this.sequences.step(this.step, going);
  }

  move(step) {
    if (!this.scene.isReplayed) return;
    this.pause();
    this.showStep(step, step < this.scene.steps || this.step < this.scene.steps);
  }

  play() {
    if (this.timer !== null) {
      this.pause();
      return;
    }
    if (!this.scene.isReplayed) return;
    by('play').classList.add('playing');
    by('play').setAttribute('aria-label', 'Pause');
    this.showStep(this.step >= this.scene.steps ? 0 : this.step, true);
    this.timer = setInterval(() => {
      this.showStep(this.step + 1, true);
      if (this.step >= this.scene.steps) this.pause();
    }, PACE);
  }

  pause() {
    if (this.timer !== null) clearInterval(this.timer);
    this.timer = null;
    by('play').classList.remove('playing');
    by('play').setAttribute('aria-label', 'Play');
  }

  listen() {
    by('filter').addEventListener('input', () => this.filterAndGo());
    by('verdicts').addEventListener('change', () => this.filterAndGo());
    by('colour-by').addEventListener('change', () => this.showExplanation());
    by('step').addEventListener('input', () => this.move(Number(by('step').value)));
    const clicks = {
      first: () => this.move(0), back: () => this.move(this.step - 1), play: () => this.play(),
      forward: () => this.move(this.step + 1), last: () => this.move(this.scene.steps),
      'zoom-in': () => this.tree.zoom(1.25), 'zoom-out': () => this.tree.zoom(0.8), fit: () => this.tree.fit(),
      theme: nextTheme, 'help-button': () => by('help').showModal(),
    };
    for (const [id, act] of Object.entries(clicks)) by(id).addEventListener('click', act);
    for (const tab of by('tabs').children) tab.addEventListener('click', () => openTab(tab));
    by('tabs').addEventListener('keydown', (event) => {
      const way = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      const tabs = [...by('tabs').children].filter((tab) => !tab.hidden);
      const next = tabs[tabs.indexOf(document.activeElement) + way];
      if (!next) return;
      openTab(next);
      next.focus();
    });
    let width = 0;  // a browser on a phone changes the height as its bars come and go
    new ResizeObserver(([{ contentRect }]) => {
      this.tree.measure();
      if (contentRect.width !== width) this.tree.fit();
      width = contentRect.width;
    }).observe(by('tree'));
    document.addEventListener('keydown', (event) => this.key(event));
  }

  key(event) {
    const { target, key } = event;
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || by('help').open) return;
    if (target.matches('input[type="search"]')) {
      if (key === 'Escape') target.blur();
      return;
    }
    if (target.matches('select')) return;
    const inList = target === by('list') || target === document.body;
    const acts = {
      n: () => this.moveExample(1), p: () => this.moveExample(-1),
      ArrowDown: inList && (() => this.moveExample(1)), ArrowUp: inList && (() => this.moveExample(-1)),
      ' ': !target.matches('button, input') && (() => this.play()),
      '.': () => this.move(this.step + 1), ',': () => this.move(this.step - 1),
      Home: () => this.move(0), End: () => this.move(this.scene.steps),
      '+': () => this.tree.zoom(1.25), '=': () => this.tree.zoom(1.25), '-': () => this.tree.zoom(0.8), 0: () => this.tree.fit(),
      v: () => showNumbers(!document.body.classList.contains('with-numbers')),
      1: () => openTab(by('tab-details')), 2: () => openTab(by('tab-neighbours')), 3: () => openTab(by('tab-plane')),
      4: !by('tab-averages').hidden && (() => openTab(by('tab-averages'))),
      '/': () => by('filter').focus(), t: nextTheme, '?': () => by('help').showModal(),
      Escape: () => this.choose(null),
    };
    if (!acts[key]) return;
    event.preventDefault();
    acts[key]();
  }
}

function openTab(chosen) {
  for (const tab of by('tabs').children) {
    const is = tab === chosen;
    tab.setAttribute('aria-selected', String(is));
    tab.tabIndex = is ? 0 : -1;
    by(tab.getAttribute('aria-controls')).hidden = !is;
  }
}

const THEMES = ['auto', 'light', 'dark'];

function nextTheme() {
  const root = document.documentElement;
  const next = THEMES[(THEMES.indexOf(root.dataset.theme ?? 'auto') + 1) % THEMES.length];
  if (next === 'auto') delete root.dataset.theme;
  else root.dataset.theme = next;
  by('theme').textContent = `Theme: ${next}`;
}

new Page(JSON.parse(by('data').textContent)).start();
