/** The named character references that are common in answers (WHATWG HTML §13.5 has all of them). */
const NAMED: Readonly<Record<string, string>> = {
  ...{ amp: '&', lt: '<', gt: '>', quot: '"', apos: "'", nbsp: '\u00a0', shy: '\u00ad' },
  ...{ copy: '©', reg: '®', trade: '™', deg: '°', plusmn: '±', micro: 'µ', para: '¶', sect: '§' },
  ...{ laquo: '«', raquo: '»', lsquo: '‘', rsquo: '’', ldquo: '“', rdquo: '”', bull: '•', middot: '·' },
  ...{ hellip: '…', ndash: '–', mdash: '—', times: '×', divide: '÷', minus: '−', ne: '≠', le: '≤', ge: '≥' },
  ...{ larr: '←', uarr: '↑', rarr: '→', darr: '↓', harr: '↔', rArr: '⇒', infin: '∞', asymp: '≈', sum: '∑' },
  ...{ euro: '€', pound: '£', yen: '¥', cent: '¢', frac12: '½', frac14: '¼', frac34: '¾', sup2: '²' },
};

const REFERENCE = /&(?:#x([0-9a-f]{1,6})|#(\d{1,7})|([a-z][a-z0-9]{1,31}));/gi;

/** Replaces the character references of `text` by their characters. One with an unknown name stays as it is. */
export function decodeReferences(text: string): string {
  return text.replace(REFERENCE, (whole: string, ...found: readonly (string | undefined)[]) => {
    const [hex, decimal, name] = found;
    if (name !== undefined) return Object.hasOwn(NAMED, name) ? String(NAMED[name]) : whole;
    return characterOf(hex === undefined ? Number(decimal) : Number.parseInt(hex, 16));
  });
}

/** CommonMark §2.5: U+FFFD in place of what is no character. */
function characterOf(code: number): string {
  const isCharacter = code > 0 && code <= 0x10ffff && !(code >= 0xd800 && code <= 0xdfff);
  return String.fromCodePoint(isCharacter ? code : 0xfffd);
}
