// The encodings of all examples in the plane of their first two principal components.

const PLANE = 400;
const MARGIN = 18;

class Plane {
  constructor(place, page, go) {
    this.place = place;
    this.page = page;
    this.go = go;
    this.points = [];
  }

  draw() {
    const { points, variance } = this.page.data.projection;
    const { each } = this.page.data.encodings;
    const known = points.filter(Boolean);
    if (!known.length) {
      this.place.replaceChildren(element('p', { class: 'quiet' }, 'No encoding of these examples is finite.'));
      return;
    }
    const ends = [0, 1].map((way) => known.map((point) => point[way])).map((along) => [Math.min(...along), Math.max(...along)]);
    const scale = (PLANE - 2 * MARGIN) / (Math.max(...ends.map(([low, high]) => high - low)) || 1);
    const onPage = (value, way) => PLANE / 2 + (way ? -scale : scale) * (value - (ends[way][0] + ends[way][1]) / 2);
    const svg = svgElement('svg', { viewBox: `0 0 ${PLANE} ${PLANE}`, role: 'group', 'aria-label': 'Encodings in a plane', tabindex: 0 },
      svgElement('path', { class: 'axis', d: `M0 ${onPage(0, 1)}H${PLANE}M${onPage(0, 0)} 0V${PLANE}` }));
    this.link = svgElement('path', { class: 'pair' });
    svg.append(this.link);
    const left = [];  // drawn last, upon the right ones, which are larger: both show where the sides agree
    this.points = points.map((point, number) => {
      const example = Math.floor(number / each);
      const side = number % each;
      if (!point) return { example, side, mark: null };
      const [x, y] = [onPage(point[0], 0), onPage(point[1], 1)];
      const { text, correct } = this.page.data.examples[example];
      const mark = side
        ? svgElement('rect', { x: x - 6, y: y - 6, width: 12, height: 12, transform: `rotate(45 ${x} ${y})` })
        : svgElement('circle', { cx: x, cy: y, r: each > 1 ? 4 : 5 });
      mark.setAttribute('class', correct === false ? 'point wrong' : 'point');
      mark.append(svgElement('title', {}, each > 1 ? `${text} (${side ? 'right' : 'left'})` : text));
      mark.addEventListener('click', () => this.go(example, side));
      if (side) svg.append(mark);
      else left.push(mark);
      return { example, side, mark, x, y };
    });
    svg.append(...left);
    svg.addEventListener('keydown', (event) => {
      const way = { ArrowLeft: -1, ArrowUp: -1, ArrowRight: 1, ArrowDown: 1 }[event.key];
      if (!way) return;
      event.preventDefault();
      const next = Math.min(this.page.data.examples.length - 1, Math.max(0, this.page.example + way));
      this.go(next, 0);
    });
    const key = [each > 1 ? ['M2 6a4 4 0 1 0 8 0a4 4 0 1 0 -8 0', '', 'left side'] : ['M1 6a5 5 0 1 0 10 0a5 5 0 1 0 -10 0', '', 'example']];
    if (each > 1) key.push(['M6 1 11 6 6 11 1 6z', '', 'right side']);
    if (this.page.data.examples.some((example) => example.correct === false)) key.push(['M2 6a4 4 0 1 0 8 0a4 4 0 1 0 -8 0', ' wrong', 'wrong answer']);
    const list = element('ul', { class: 'key' }, ...key.map(([path, kind, what]) => element('li', {},
      svgElement('svg', { viewBox: '0 0 12 12', 'aria-hidden': true }, svgElement('path', { d: path, class: `point${kind}` })), what)));
    this.place.replaceChildren(
      element('p', { class: 'quiet' }, `Principal components of the encodings: across ${variance[0]} % of their variance, upwards ${variance[1]} %. Click on one to see its example.`),
      svg, list);
  }

  show(example) {
    const own = [];
    for (const point of this.points) {
      const here = point.example === example;
      if (!point.mark) continue;
      point.mark.classList.toggle('here', here);
      if (here) own.unshift(point);  // the left one last, upon the right one
    }
    for (const { mark } of own) mark.parentNode.append(mark);
    if (this.link) this.link.setAttribute('d', own.length === 2 ? `M${own[0].x} ${own[0].y}L${own[1].x} ${own[1].y}` : 'M0 0');
  }
}
