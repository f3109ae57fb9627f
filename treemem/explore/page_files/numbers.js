// Numbers of four significant digits, three bytes of base64 each (see treemem/explore/decimals.py).

/** The vectors of one width. */
class Pool {
  constructor(text, width) {
    const bytes = atob(text);
    const view = new DataView(new ArrayBuffer(4));
    this.numbers = Float32Array.from({ length: bytes.length / 3 }, (_, number) => {
      for (let part = 0; part < 3; part += 1) view.setUint8(part, bytes.charCodeAt(3 * number + part));
      return view.getFloat32(0);
    });
    this.width = width;
  }

  values(place) {
    return Array.from(this.numbers.subarray(place * this.width, (place + 1) * this.width));
  }

  texts(place) {
    return this.values(place).map(textOf);
  }
}

function textOf(value) {
  return value && Number.isFinite(value) ? value.toPrecision(4) : String(value);
}

/**
 * How the numbers of a field are coloured: from -most over 0 to most. States of leaves may be far larger than those of
 * inner nodes, so colours grow with the square root there. All gates and pointers have one scale, from 0 to 1; attention,
 * which is shared out over all positions, one up to its largest weight in the example.
 */
function scaleOf(field) {
  const low = Number(field.low);
  const high = Number(field.high);
  const isShare = field.sort !== 'state' && field.sort !== 'attention' && low >= 0 && high <= 1 && !field.name.endsWith('_distance');
  const most = isShare ? 1 : Math.max(-low, high) || 1;
  return { most, power: field.sort === 'state' ? 0.5 : 1, fromZero: low >= 0 };
}

/** The colour of a number as a mixture of the theme's own colours; none for NaN. */
function heat(value, { most, power, strength = 1 }) {
  if (Number.isNaN(value)) return null;
  const share = strength * Math.min(1, Math.abs(value) / most) ** power;
  return `color-mix(in oklab, var(${value < 0 ? '--low' : '--high'}) ${(100 * share).toFixed(1)}%, var(--zero))`;
}
