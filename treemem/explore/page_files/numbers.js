// Numbers of four significant digits, four characters of base64 each (see treemem/explore/decimals.py).

const SIXTY_FOUR = new Int8Array(128).fill(-1);
[...'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/'].forEach((character, value) => {
  SIXTY_FOUR[character.charCodeAt(0)] = value;
});
const SPECIAL = [0, NaN, Infinity, -Infinity];
const SPECIAL_TEXT = ['0', 'NaN', 'Infinity', '-Infinity'];

/** The vectors of one width, read where they are asked for. */
class Pool {
  constructor(text, width) {
    this.text = text;
    this.width = width;
  }

  code(place, entry) {
    const at = 4 * (place * this.width + entry);
    let code = 0;
    for (let next = at; next < at + 4; next += 1) code = code * 64 + SIXTY_FOUR[this.text.charCodeAt(next)];
    return code;
  }

  values(place) {
    return Array.from({ length: this.width }, (_, entry) => valueOf(this.code(place, entry)));
  }

  texts(place) {
    return Array.from({ length: this.width }, (_, entry) => textOf(this.code(place, entry)));
  }
}

function partsOf(code) {
  const rest = code - 4;
  const place = Math.floor(rest / 9000);
  return { sign: place % 2 ? -1 : 1, exponent: Math.floor(place / 2) - 324, mantissa: (rest % 9000) + 1000 };
}

function valueOf(code) {
  if (code < 4) return SPECIAL[code];
  const { sign, exponent, mantissa } = partsOf(code);
  return sign * Number(`${mantissa}e${exponent - 3}`);
}

function textOf(code) {
  if (code < 4) return SPECIAL_TEXT[code];
  const { sign, exponent, mantissa } = partsOf(code);
  const minus = sign < 0 ? '-' : '';
  const digits = String(mantissa);
  if (exponent < -4 || exponent > 3) {
    const size = String(Math.abs(exponent)).padStart(2, '0');
    return `${minus}${digits[0]}.${digits.slice(1)}e${exponent < 0 ? '-' : '+'}${size}`;
  }
  if (exponent < 0) return `${minus}0.${'0'.repeat(-exponent - 1)}${digits}`;
  const whole = digits.slice(0, exponent + 1);
  return exponent === 3 ? minus + whole : `${minus}${whole}.${digits.slice(exponent + 1)}`;
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
function heat(value, { most, power }) {
  if (Number.isNaN(value)) return null;
  const share = Math.min(1, Math.abs(value) / most) ** power;
  return `color-mix(in oklab, var(${value < 0 ? '--low' : '--high'}) ${(100 * share).toFixed(1)}%, var(--zero))`;
}
