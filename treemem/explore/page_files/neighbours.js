// The nodes or tokens of the page whose vectors point the same way.

const MOST_NEIGHBOURS = 12;

class Neighbours {
  constructor(place, page, go) {
    this.place = place;
    this.page = page;
    this.go = go;
  }

  /** What is compared: the field that encodes, and of each row its vector and length. */
  read() {
    if (this.vectors) return;
    const { page } = this;
    this.field = page.data.fields.find((field) => field.sort === 'state' && field.entries === 1);
    if (!this.field) return;
    const places = page.data.rows[this.field.name];
    const pool = page.pools[this.field.width];
    const known = new Map();
    this.vectors = places.map((place) => {
      if (place < 0) return null;
      if (!known.has(place)) known.set(place, Float64Array.from(pool.values(place)));
      return known.get(place);
    });
    this.lengths = this.vectors.map((vector) => (vector ? Math.hypot(...vector) : 0));
  }

  /** The rows nearest to a row, by cosine; those without a direction are left out, and so is the row itself. */
  nearest(row) {
    this.read();
    const own = this.vectors?.[row];
    if (!own || !(this.lengths[row] > 0) || !Number.isFinite(this.lengths[row])) return [];
    const found = [];
    this.vectors.forEach((other, number) => {
      const length = this.lengths[number];
      if (number === row || !other || !(length > 0) || !Number.isFinite(length)) return;
      let product = 0;
      for (let entry = 0; entry < own.length; entry += 1) product += own[entry] * other[entry];
      found.push({ row: number, cosine: product / (length * this.lengths[row]) });
    });
    return found.sort((one, other) => other.cosine - one.cosine || one.row - other.row).slice(0, MOST_NEIGHBOURS);
  }

  show(row, name) {
    const { page } = this;
    if (row === null) {
      this.place.replaceChildren(element('p', { class: 'quiet' }, `Choose a ${page.itemName} to see the ones that are most like it.`));
      return;
    }
    const nearest = this.nearest(row);
    if (!nearest.length) {
      this.place.replaceChildren(element('p', { class: 'quiet' }, 'Nothing on this page has a vector to compare.'));
      return;
    }
    const list = nearest.map(({ row: other, cosine }) => {
      const { first, count } = page.itemOfRow[other];
      const more = count > 1 ? `, and ${count - 1} more` : '';
      const button = element('button', { type: 'button', class: 'neighbour' },
        element('span', { class: 'cosine' }, cosine.toFixed(4)),
        element('span', { class: 'name' }, page.nameOf(first)),
        element('span', { class: 'where' }, `example ${page.data.examples[first.example].id}${more}`));
      button.addEventListener('click', () => this.go(first));
      return button;
    });
    const what = `Cosine of ${this.field.name} with that of`;
    this.place.replaceChildren(element('p', { class: 'quiet' }, `${what} `, element('b', {}, name), ', highest first; equal ones are listed once.'), ...list);
  }
}
