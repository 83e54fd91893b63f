/** A piece of a page. Only `html` makes one, so that what came from elsewhere is always escaped in it. */
class Html {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

export type { Html };

/** What can stand in a template: a text is escaped, `undefined` and `false` are nothing. */
type Value = Html | string | number | undefined | false | readonly Value[];

/**
 * The tag of all templates of the console. Values are escaped for the content of elements and for attributes in double
 * quotes, and stand nowhere else.
 */
export function html(strings: TemplateStringsArray, ...values: readonly Value[]): Html {
  return new Html(strings.map((text, at) => text + written(values[at])).join(''));
}

function written(value: Value): string {
  if (value === undefined || value === false) return '';
  if (value instanceof Html) return value.text;
  if (typeof value === 'object') return value.map(written).join('');
  return String(value).replace(/[&<>"']/g, (one) => `&#${one.charCodeAt(0)};`);
}
