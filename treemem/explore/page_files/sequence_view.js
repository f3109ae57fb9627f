// What a sequence encoder did at each token, as tables: a row a token, a column a slot, layer or unit.

const MOST_WIDE = 16;  // positions of which attention has cells as wide as those of other traces

class SequenceView {
  constructor(place, page, chosen) {
    this.place = place;
    this.page = page;
    this.chosen = chosen;
    this.field = null;
    this.rows = [];
    place.addEventListener('keydown', (event) => this.key(event));
  }

  show(sequences, names) {
    const { page } = this;
    const hadFocus = this.rows.some((row) => row.button === document.activeElement);
    this.rows = [];
    this.place.replaceChildren();
    const steps = page.data.fields.filter((field) => field.sort === 'step');
    const fields = [...steps, ...attentionFields(page, sequences), ...page.data.fields.filter((field) => field.sort === 'state' && field.entries === 1)];
    if (!fields.some((field) => field.name === this.field)) this.field = fields[0]?.name ?? null;
    const field = fields.find((other) => other.name === this.field);
    if (field) this.place.append(this.head(fields, field, sequences, names));
    const tables = element('div', { class: 'tables' });
    sequences.forEach((sequence, number) => {
      const name = sequence.tooLong ? `${names[number]}: too long a sequence to keep its attention` : names[number];
      tables.append(this.table(sequence, number, field, name));
    });
    this.place.append(tables);
    if (hadFocus) this.focus();
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
    if (field?.sort === 'attention') return this.attentionTable(sequence, number, field, name);
    const table = element('table', { class: 'tokens' }, element('caption', {}, name));
    if (field && !isBars(field) && field.sort === 'step' && field.width <= 64) {
      const head = element('tr', {}, element('th'), element('th'));
      for (const other of this.besides(field)) {
        const columns = other.sort === 'step' ? other.width : 1;
        for (let entry = 0; entry < columns; entry += 1) head.append(element('th', { scope: 'col' }, titleOf(other)));
      }
      for (let entry = 0; entry < field.width; entry += 1) head.append(element('th', { scope: 'col' }, String(entry + 1)));
      table.append(element('thead', {}, head));
    }
    const body = element('tbody');
    sequence.token.forEach((token, place) => {
      const row = this.tokenRow(token, number, place);
      const fields = field ? [...this.besides(field), field] : [];
      for (const other of fields) row.append(...this.cells(other, sequence.row[place]));
      body.append(row);
    });
    table.append(body);
    return table;
  }

  /** What stands before the strengths of items: the weights of actions, and what was read. */
  besides(field) {
    if (field.axis !== 'items') return [];
    const { fields } = this.page.data;
    return [...fields.filter((other) => other.axis === 'ends'), ...fields.filter((other) => other.name === 'readout')];
  }

  /** A row with the place of a token and the button that chooses it. */
  tokenRow(token, number, place) {
    const button = element('button', { type: 'button', tabindex: this.rows.length ? -1 : 0 }, this.page.shortLabel(token));
    button.addEventListener('click', () => this.chosen({ part: number, token: place }));
    const row = element('tr', {}, element('td', { class: 'place' }, String(place + 1)), element('td', {}, button));
    this.rows.push({ row, button, at: { part: number, token: place }, step: place });
    return row;
  }

  /** A row and a column for each position, the mark after the tokens included, which no button chooses. */
  attentionTable(sequence, number, field, name) {
    const { attention } = sequence;
    const narrow = attention?.positions > MOST_WIDE;
    const table = element('table', { class: narrow ? 'tokens attention narrow' : 'tokens attention' }, element('caption', {}, name));
    const labels = attention ? this.page.attentionLabels(sequence) : [];
    const head = element('tr', {}, element('th'), element('th'));
    labels.forEach((label, place) => {
      const said = narrow && (place + 1) % 5 ? '' : String(place + 1);
      head.append(element('th', { scope: 'col', title: `${label} (${place + 1})` }, said));
    });
    table.append(element('thead', {}, head));
    const body = element('tbody');
    sequence.token.forEach((token, place) => {
      const row = this.tokenRow(token, number, place);
      if (attention) row.append(...this.attentionCells(sequence, field, place, labels));
      body.append(row);
    });
    if (attention && attention.mark !== null) {
      const place = sequence.token.length;
      const row = element('tr', {}, element('td', { class: 'place' }, String(place + 1)), element('td', { class: 'mark-name' }, labels[place]),
        ...this.attentionCells(sequence, field, place, labels));
      body.append(row);
    }
    table.append(body);
    return table;
  }

  attentionCells(sequence, field, place, labels) {
    const scale = scaleOf(field);
    const pool = this.page.attentionPool(sequence);
    const vector = field.layer * sequence.attention.positions + place;
    const values = pool.values(vector);
    return pool.texts(vector).map((text, entry) => {
      const cell = element('td', { class: 'cell', title: `${labels[place]} (${place + 1}) to ${labels[entry]} (${entry + 1}): ${text}` });
      cell.style.background = heat(values[entry], scale) ?? 'var(--card)';
      return cell;
    });
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
        const nothing = field.axis === 'items' ? 'none' : 'repeating-linear-gradient(45deg, var(--odd) 0 2px, var(--card) 2px 4px)';
        cell.style.background = heat(values[entry], scale) ?? nothing;
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

  /** Give the focus to the chosen token, or else to the first. */
  focus() {
    this.rows.find((row) => row.button.tabIndex === 0)?.button.focus();
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

/** One for each layer of attention that sequences have; colours go up to the largest weight in any of these. */
function attentionFields(page, sequences) {
  const kept = sequences.map((sequence) => sequence.attention).filter(Boolean);
  const high = String(Math.max(...kept.map((attention) => Number(attention.most))));
  return Array.from({ length: kept[0]?.layers ?? 0 }, (_, layer) => (
    { name: `attention ${layer}`, sort: 'attention', entries: 1, by: page.data.attendsBy, layer, low: '0', high }));
}

function isBars(field) {
  return field.axis === 'layers' || field.axis === 'steps';
}
