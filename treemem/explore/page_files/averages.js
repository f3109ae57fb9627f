// Mean gates of all nodes of the page, by label and height.

const EVERY = 'all';

class Averages {
  constructor(place, page) {
    this.place = place;
    this.page = page;
  }

  /** The gates of whole nodes whose numbers are shares: of stack networks, what they push, pop and leave. */
  gates() {
    const { data } = this.page;
    return data.fields.filter((field) => data.items === 'nodes' && field.sort === 'gate' && field.entries === 1 && Number(field.low) >= 0);
  }

  /** The mean of a gate in each row of the table of states; NaN where it is not known. */
  means(field) {
    const pool = this.page.pools[field.width];
    return this.page.data.rows[field.name].map((vector) => (vector < 0 ? NaN : pool.values(vector).reduce((sum, value) => sum + value, 0) / field.width));
  }

  /** Sums and counts by label, then height; each with an entry for all. */
  sums(field) {
    const means = this.means(field);
    const found = new Map();
    const add = (label, height, value) => {
      if (!found.has(label)) found.set(label, new Map());
      const entry = found.get(label).get(height) ?? { sum: 0, count: 0 };
      found.get(label).set(height, { sum: entry.sum + value, count: entry.count + 1 });
    };
    this.page.data.examples.forEach(({ trees }, example) => trees.forEach((tree, part) => {
      const { height } = this.page.treeOf(example, part);
      tree.row.forEach((row, node) => {
        if (!Number.isFinite(means[row])) return;
        const label = this.page.shortLabel(tree.label[node]);
        for (const one of [label, EVERY]) for (const other of [height[node], EVERY]) add(one, other, means[row]);
      });
    }));
    return found;
  }

  draw() {
    const tables = this.gates().map((field) => this.table(field, this.sums(field)));
    this.place.replaceChildren(
      element('p', { class: 'quiet' }, 'Mean of each gate over its units and the nodes of all examples on this page, by label and by height above the deepest leaf.'),
      ...tables);
  }

  table(field, sums) {
    const last = (one, other) => (one === EVERY) - (other === EVERY);
    const labels = [...sums.keys()].sort((one, other) => last(one, other) || one.localeCompare(other));
    const heights = [...(sums.get(EVERY)?.keys() ?? [])].sort((one, other) => last(one, other) || one - other);
    const cell = (label, height) => {
      const entry = sums.get(label).get(height);
      if (!entry) return element('td', {});
      const made = element('td', { title: `${label}, height ${height}: ${entry.count} ${entry.count === 1 ? 'node' : 'nodes'}` }, (entry.sum / entry.count).toFixed(2));
      made.style.background = heat(entry.sum / entry.count / 2, scaleOf(field));  // half as strong, to be read upon
      return made;
    };
    const head = element('tr', {}, element('th', { scope: 'col' }, 'height'), ...heights.map((height) => element('th', { scope: 'col' }, String(height))));
    const body = labels.map((label) => element('tr', {}, element('th', { scope: 'row' }, label), ...heights.map((height) => cell(label, height))));
    const made = element('table', {}, element('caption', {}, `${titleOf(field)}: ${whatIs(field)}`), element('thead', {}, head), element('tbody', {}, ...body));
    made.dataset.field = field.name;
    return element('div', { class: 'averages' }, made);
  }
}
