import { SettingsError } from '../settings/settings-error.ts';
import { type Html, html } from './html.ts';

/** What is wrong with a form, or with one of its fields. */
export interface Fault {
  readonly field?: string | undefined;
  readonly message: string;
}

/** What a form shows: the settings, or what was sent and could not be taken. */
export interface Form {
  /** Unique in its page. */
  readonly id: string;
  readonly values: URLSearchParams;
  readonly faults: readonly Fault[];
}

/** A form with these values; those that are undefined stay empty. */
export function formOf(id: string, values: Readonly<Record<string, string | number | undefined>> = {}): Form {
  const given = Object.entries(values).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, String(value)] as const],
  );
  return { id, values: new URLSearchParams(Object.fromEntries(given)), faults: [] };
}

/** Makes a change. Returns what is wrong with it; nothing if it was made. */
export async function faultsOf(act: () => unknown): Promise<Fault[]> {
  try {
    await act();
    return [];
  } catch (error) {
    if (!(error instanceof SettingsError)) throw error;
    return [error];
  }
}

/** The list of all faults, before the forms that have them. */
export function faultSummary({ id, faults }: Form): Html | undefined {
  if (faults.length === 0) return undefined;
  const items = faults.map(({ field, message }) =>
    field === undefined ? html`<li>${message}</li>` : html`<li><a href="#${id}-${field}">${message}</a></li>`,
  );
  return html`<div class="faults" role="alert"><h2>This was not saved</h2><ul>${items}</ul></div>`;
}

interface FieldOptions {
  readonly name: string;
  readonly label: string;
  readonly hint?: string | undefined;
}

/** A field with its label, its hint and what is wrong with it. `control` gets the attributes that tie them together. */
function field({ id, faults }: Form, options: FieldOptions, control: (attributes: Html) => Html): Html {
  const { name, label, hint } = options;
  const own = `${id}-${name}`;
  const fault = faults.find((one) => one.field === name);
  const described = [...(hint === undefined ? [] : [`${own}-hint`]), ...(fault ? [`${own}-fault`] : [])];
  const attributes = html`id="${own}" name="${name}"${
    described.length > 0 && html` aria-describedby="${described.join(' ')}"`
  }${fault && html` aria-invalid="true"`}`;
  return html`<div class="field">
<label for="${own}">${label}</label>
${hint !== undefined && html`<p class="hint" id="${own}-hint">${hint}</p>`}
${fault && html`<p class="fault" id="${own}-fault">${fault.message}</p>`}
${control(attributes)}
</div>`;
}

interface TextOptions extends FieldOptions {
  readonly inputMode?: 'numeric' | 'decimal' | 'url';
  /** For a name, a path or a number, in which a browser should not correct anything. */
  readonly isCode?: boolean;
}

/** A field of one line. */
export function textField(form: Form, options: TextOptions): Html {
  const { name, inputMode, isCode } = options;
  const mode = inputMode && html` inputmode="${inputMode}"`;
  const plain = isCode && html` class="code" spellcheck="false" autocapitalize="none"`;
  const value = form.values.get(name) ?? '';
  const control = (attributes: Html) =>
    html`<input type="text" ${attributes} value="${value}" autocomplete="off"${mode}${plain}>`;
  return field(form, options, control);
}

/** A field for a key or a password. What was sent in it is never shown again. */
export function secretField(form: Form, options: FieldOptions & { autocomplete: string }): Html {
  const control = (attributes: Html) =>
    html`<input type="password" ${attributes} autocomplete="${options.autocomplete}">`;
  return field(form, options, control);
}

/** A field of several lines. */
export function areaField(form: Form, options: FieldOptions & { readonly rows: number }): Html {
  // The parser drops the first line break (WHATWG HTML §13.2.6.4.7).
  const control = (attributes: Html) =>
    html`<textarea ${attributes} rows="${options.rows}">\n${form.values.get(options.name) ?? ''}</textarea>`;
  return field(form, options, control);
}

/** A choice of one of `choices`, each a value with what it is called. */
export function selectField(
  form: Form,
  options: FieldOptions & { readonly choices: readonly (readonly [value: string, label: string])[] },
): Html {
  const chosen = form.values.get(options.name);
  const items = options.choices.map(
    ([value, label]) =>
      html`<option value="${value}"${value === chosen && html` selected`}>${label}</option>`,
  );
  return field(form, options, (attributes) => html`<select ${attributes}>${items}</select>`);
}

/** A choice of files, whose names end as `accept` lists. */
export function fileField(form: Form, options: FieldOptions & { readonly accept: string }): Html {
  const control = (attributes: Html) =>
    html`<input type="file" ${attributes} accept="${options.accept}" multiple>`;
  return field(form, options, control);
}

/** A box to tick. */
export function checkField({ id, values }: Form, { name, label }: FieldOptions): Html {
  const own = `${id}-${name}`;
  return html`<div class="check">
<input type="checkbox" id="${own}" name="${name}" value="on"${values.has(name) && html` checked`}>
<label for="${own}">${label}</label>
</div>`;
}
