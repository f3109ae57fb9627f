// What a sequence encoder did at each token, as tables: a row a token, a column a slot, layer or unit.

class SequenceView {
  constructor(place, page, chosen) {
    this.place = place;
    this.page = page;
    this.chosen = chosen;
    this.field = null;
    place.addEventListener('keydown', (event) => this.key(event));
  }

  show(sequences, names) {
    const { page } = this;
    this.rows = [];
    this.place.replaceChildren();
    const steps = page.data.fields.filter((field) => field.sort === 'step');
    const fields = [...steps, ...page.data.fields.filter((field) => field.sort === 'state' && field.entries === 1)];
    if (!fields.some((field) => field.name === this.field)) this.field = fields[0]?.name ?? null;
    const field = fields.find((other) => other.name === this.field);
    if (field) this.place.append(this.head(fields, field, sequences, names));
    const tables = element('div', { class: 'tables' });
    sequences.forEach((sequence, number) => tables.append(this.table(sequence, number, field, names[number])));
    this.place.append(tables);
  }

  head(fields, field, sequences, names) {
    const choice = element('select', { 'aria-label': 'What to show at each token', id: 'trace' },
      ...fields.map((other) => element('option', { value: other.name, selected: other.name === field.name }, titleOf(other))));
    choice.addEventListener('change', () => {
      this.field = choice.value;
      this.show(sequences, names);
      this.select(this.current);
      this.step(this.shown, this.going);
      document.getElementById('trace').focus();
    });
    return element('div', { class: 'traces' }, choice, element('span', {}, whatIs(field)), legend(field));
  }

  table(sequence, number, field, name) {
    const table = element('table', { class: 'tokens' }, element('caption', {}, name));
    if (field && !isBars(field) && field.sort === 'step' && field.width <= 64) {
      const head = element('tr', {}, element('th'), element('th'));
      for (let entry = 0; entry < field.width; entry += 1) head.append(element('th', { scope: 'col' }, String(entry + 1)));
      table.append(element('thead', {}, head));
    }
    const body = element('tbody');
    sequence.token.forEach((token, place) => {
      const button = element('button', { type: 'button', tabindex: this.rows.length ? -1 : 0 }, this.page.shortLabel(token));
      button.addEventListener('click', () => this.chosen({ part: number, token: place }));
      const row = element('tr', {}, element('td', { class: 'place' }, String(place + 1)), element('td', {}, button));
      if (field) row.append(...this.cells(field, sequence.row[place]));
      this.rows.push({ row, button, at: { part: number, token: place }, step: place });
      body.append(row);
    });
    table.append(body);
    return table;
  }

  cells(field, row) {
    const [vector] = this.page.vectors(field, row);
    if (vector < 0) return [];
    const pool = this.page.pools[field.width];
    const values = pool.values(vector);
    const scale = scaleOf(field);
    if (isBars(field)) {
      const bars = values.map((value) => {
        const bar = element('i', { class: 'bar' });
        bar.style.width = `${Math.min(100, (100 * Math.abs(value)) / scale.most) || 0}%`;
        return bar;
      });
      return [element('td', { class: 'bars', title: pool.texts(vector).join('  ') }, ...bars)];
    }
    if (field.sort === 'step' && field.width <= 64) {
      return pool.texts(vector).map((text, entry) => {
        const cell = element('td', { class: 'cell', title: `${field.name} ${entry + 1}: ${text}` });
        cell.style.background = heat(values[entry], scale) ?? 'repeating-linear-gradient(45deg, var(--odd) 0 2px, var(--card) 2px 4px)';
        return cell;
      });
    }
    return [element('td', { class: 'strip' }, strip(pool, vector, scale, field.name))];
  }

  /** Show the tokens that have been read. */
  step(step, going = false) {
    this.shown = step;
    this.going = going;
    for (const row of this.rows) row.row.classList.toggle('later', row.step > step);
  }

  select(at) {
    this.current = at;
    for (const row of this.rows) {
      const is = Boolean(at) && row.at.part === at.part && row.at.token === at.token;
      row.row.classList.toggle('chosen', is);
      row.button.tabIndex = is || (!at && row === this.rows[0]) ? 0 : -1;
      row.button.setAttribute('aria-pressed', String(is));
      if (is && !isSeen(row.row, this.place)) row.row.scrollIntoView({ block: 'nearest' });
    }
  }

  key(event) {
    const way = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    const place = this.rows.findIndex((row) => row.button === document.activeElement);
    const next = this.rows[place + way];
    if (place < 0 || !next) return;
    event.preventDefault();
    this.chosen(next.at);
    next.button.focus();
  }
}

function isSeen(row, frame) {
  const inner = row.getBoundingClientRect();
  const outer = frame.getBoundingClientRect();
  return inner.top >= outer.top && inner.bottom <= outer.bottom;
}

function isBars(field) {
  return field.name.endsWith('_distance');
}
