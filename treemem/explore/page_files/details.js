// What is known of a node or token: its states, stack and gates as heat strips, and its numbers.

const WHAT = {
  h: 'what the node hands on',
  c: 'the cell',
  S: 'the stack, row 0 the top',
  push: 'weight of pushing',
  pop: 'weight of popping',
  no_op: 'weight of leaving the stack',
  forget: 'of each child',
  input: 'input gate',
  output: 'output gate',
  insert: 'weight of inserting',
  left: 'weight of going left',
  right: 'weight of going right',
  strength: 'of each item in memory, the oldest first, beside what was pushed, popped and read',
  read_weights: 'weight of each row in reading',
  write_weights: 'weight of each row in writing',
  attention: 'weight of each place of the source',
  readout: 'what was read',
  value: 'what was pushed',
  memory: 'the rows of the memory',
  top: 'probability of each top symbol, by state',
  update: 'what is pushed or added',
  children: 'gate of each child',
  candidate_gate: 'gate of what the node adds',
  candidate: 'what the node adds',
  reading: 'weights of the rows read',
  pointers: 'where the token goes, by slot',
  cumulative: 'pointers summed up, by slot',
  slots: 'what each has composed so far',
  backward_slots: 'the same from right to left',
  backward_pointers: 'pointers from right to left',
  backward_cumulative: 'these summed up, by slot',
  forget_distance: 'how high a constituent ended, by layer',
  input_distance: 'mean of the master input gate, by layer',
  master_forget: 'master forget gate, by unit',
  master_input: 'master input gate, by unit',
  ponder: 'steps taken',
};

function whatIs(field) {
  if (field.sort === 'attention') return 'what each position, a row, attends to; mean of the heads';
  return field.name === 'h' && field.ofTokens ? 'output at the token' : WHAT[field.name] ?? '';
}

function titleOf(field) {
  if (field.sort === 'attention') return `attention, ${field.by} ${field.layer + 1}`;
  return field.name.replaceAll('_', ' ');
}

function legend(field) {
  return legendOf(scaleOf(field), `from ${field.low} to ${field.high} on this page`);
}

function legendOf(scale, title) {
  const bar = element('i');
  const stops = [];
  for (let at = scale.fromZero ? 0 : -1; at <= 1; at += 0.125) stops.push(heat(at * scale.most, scale));
  bar.style.background = `linear-gradient(to right, ${stops.join(', ')})`;
  const text = String(Number(scale.most.toPrecision(3)));
  return element('span', { class: 'legend', title },
    scale.fromZero ? '0' : `−${text}`, bar, text);
}

/** A vector as a row of cells; one that is no number is crossed, one that is infinite has a dot. */
function strip(pool, vector, scale, name) {
  const values = pool.values(vector);
  const cells = svgElement('svg', { viewBox: `0 0 ${values.length} 1`, preserveAspectRatio: 'none', role: 'img', 'shape-rendering': 'crispEdges' });
  const strange = values.filter((value) => !Number.isFinite(value)).length;
  cells.setAttribute('aria-label', `${name}: ${values.length} numbers${strange ? `, ${strange} not finite` : ''}`);
  values.forEach((value, entry) => {
    const cell = svgElement('rect', { x: entry, y: 0, width: 1, height: 1 });
    cell.style.fill = heat(value, scale) ?? 'var(--card)';
    cells.append(cell);
    if (Number.isFinite(value)) return;
    const cross = Number.isNaN(value) ? 'M.2 .2L.8 .8M.8 .2L.2 .8' : 'M.25 .5H.75';
    const mark = svgElement('path', { d: cross, 'vector-effect': 'non-scaling-stroke', 'shape-rendering': 'auto' });
    mark.setAttribute('transform', `translate(${entry} 0)`);
    mark.style.stroke = 'var(--ink)';
    mark.style.fill = 'none';
    cells.append(mark);
  });
  cells.dataset.width = pool.width;
  cells.dataset.vector = vector;
  cells.dataset.name = name;
  return cells;
}

class Details {
  constructor(place, page) {
    this.place = place;
    this.page = page;
    this.readout = element('p', { class: 'readout', 'aria-live': 'off' });
    const told = (event) => this.tell(event);
    place.addEventListener('pointermove', told);
    place.addEventListener('pointerdown', told);
  }

  /** Show a heading, facts (pairs of texts), the fields of a row, and lists of vectors that belong to no row. */
  show(name, facts, row, vectors = []) {
    const { page } = this;
    const list = element('dl', { class: 'facts-list' });
    for (const [term, fact] of facts) list.append(element('dt', {}, term), element('dd', {}, fact));
    this.place.replaceChildren(element('p', { class: 'node-name' }, name), list);
    const fields = row === null ? [] : page.data.fields.filter((field) => page.vectors(field, row).some((vector) => vector >= 0));
    if (!fields.length && !vectors.length) {
      if (row !== null) this.place.append(element('p', { class: 'quiet' }, 'The network keeps no states to show here.'));
      return;
    }
    this.place.append(this.switch());
    for (const { title, field, places, names } of vectors) this.place.append(this.field(field, places, title, names));
    for (const sort of ['state', 'gate', 'step']) {
      for (const field of fields.filter((other) => other.sort === sort)) {
        this.place.append(this.field(field, page.vectors(field, row), titleOf(field), null));
      }
    }
    this.readout.textContent = 'Point at a strip to read its numbers.';
    this.place.append(this.readout);
  }

  switch() {
    const box = element('input', { type: 'checkbox', id: 'with-numbers' });
    box.checked = document.body.classList.contains('with-numbers');
    box.addEventListener('change', () => showNumbers(box.checked));
    return element('label', { class: 'check' }, box, 'numbers');
  }

  field(field, places, title, names) {
    const pool = this.page.pools[field.width];
    const made = element('section', { class: 'field' },
      element('div', { class: 'field-head' }, element('h3', {}, title), element('span', { class: 'what' }, names ? '' : whatIs(field)), legend(field)));
    made.dataset.field = field.name;
    places.forEach((vector, entry) => {
      if (vector < 0) return;
      const single = places.length === 1;
      const which = names ? names[entry] : nameOfEntry(field, entry);
      const full = single ? title : `${title} ${which}`;
      const texts = pool.texts(vector);
      const shown = pool.width === 1 ? element('span', { class: 'one' }, texts[0]) : strip(pool, vector, scaleOf(field), full);
      const line = element('div', { class: single ? 'entry single' : 'entry' }, single ? null : element('span', { class: 'which', title: which }, which), shown);
      if (pool.width > 1) line.append(numbers(texts));
      made.append(line);
    });
    return made;
  }

  tell(event) {
    const cells = event.target.closest('svg[data-vector]');
    if (!cells) return;
    const { left, width } = cells.getBoundingClientRect();
    const pool = this.page.pools[cells.dataset.width];
    const entry = Math.min(pool.width - 1, Math.max(0, Math.floor(((event.clientX - left) / width) * pool.width)));
    this.readout.textContent = `${cells.dataset.name} [${entry}]  ${pool.texts(Number(cells.dataset.vector))[entry]}`;
  }
}

function numbers(texts) {
  const line = element('p', { class: 'numbers' });
  if (texts.every((text) => text === '0')) {
    line.append(`${texts.length} × 0`);
    return line;
  }
  texts.forEach((text, entry) => {
    const strange = text === 'NaN' || text.endsWith('Infinity');
    line.append(strange ? element('b', { class: 'strange' }, text) : text, entry + 1 < texts.length ? ' ' : '');
  });
  return line;
}

const ONE_OF = { children: 'child', slots: 'slot', layers: 'layer', steps: 'step', heads: 'head' };

function nameOfEntry(field, entry) {
  if (field.name === 'S') return entry ? `row ${entry}` : 'row 0, top';
  return field.axis in ONE_OF ? `${ONE_OF[field.axis]} ${entry + 1}` : String(entry);
}

function showNumbers(on) {
  document.body.classList.toggle('with-numbers', on);
  const box = document.getElementById('with-numbers');
  if (box) box.checked = on;
}
