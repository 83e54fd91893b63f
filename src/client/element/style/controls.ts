/** Buttons, fields and texts, as all parts of the chat show them. */
export const CONTROLS = `
:is(button, .button, input, textarea, select) {
  min-block-size: 2.5rem; padding: .4rem .8rem; font: inherit; color: inherit;
  border: 1px solid var(--edge); border-radius: .6rem; background: var(--surface);
}
textarea, label input { inline-size: 100%; }
textarea { display: block; resize: none; field-sizing: content; min-block-size: 3rem; max-block-size: min(12rem, 30vh); }
::placeholder { color: var(--muted); opacity: 1; }
:is(button, .button, select) { cursor: pointer; font-size: .9rem; text-align: center; text-decoration: none; }
:is(button, .button, select):hover { border-color: var(--text); }
button[aria-disabled="true"] { color: var(--muted); cursor: default; }
button[aria-pressed="true"] { border: 2px solid var(--accent); background: var(--own); }
[type="submit"], a.button { font-weight: 600; color: var(--on-accent); border-color: var(--accent); background: var(--accent); }
:focus-visible { outline: 3px solid var(--accent); outline-offset: 2px; }
.log:focus-visible, pre:focus-visible { outline-offset: -3px; }
a { color: var(--accent); overflow-wrap: anywhere; }
.note { color: var(--muted); font-size: .875rem; font-variant-numeric: tabular-nums; }
.why { color: var(--bad); overflow-wrap: anywhere; }
:is(.note, .why, .files, .tools):empty { display: none; }
`;
