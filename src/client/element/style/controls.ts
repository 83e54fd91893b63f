/** Buttons, fields and texts, as all parts of the chat show them. */
export const CONTROLS = `
:where(button, .button, input, textarea, select) {
  min-block-size: 2.5rem; padding: .4rem .9rem; font: inherit; color: inherit;
  border: 1px solid var(--line); border-radius: .75rem; background: var(--page);
}
:where(input, textarea, select) { border-color: var(--edge); }
textarea, label input, dialog input { inline-size: 100%; }
textarea { display: block; resize: none; field-sizing: content; min-block-size: 3rem; max-block-size: min(12rem, 30vh); }
::placeholder { color: var(--muted); opacity: 1; }
:where(button, .button, select) { cursor: pointer; font-size: .9rem; text-align: center; text-decoration: none; }
:where(button, .button):hover { background: var(--surface); }
button[aria-pressed="true"] { border: 2px solid var(--accent); background: var(--own); }
:is([type="submit"], a.button), :is([type="submit"], a.button):hover { font-weight: 600; color: var(--on-accent); border-color: var(--accent); background: var(--accent); }
:is([type="submit"], a.button):hover { filter: brightness(1.08); }
button.danger, button.danger:hover { color: var(--page); border-color: var(--bad); background: var(--bad); }
button[aria-disabled="true"], button[aria-disabled="true"]:hover { color: var(--muted); border-color: var(--line); background: var(--surface); filter: none; cursor: default; }
.icon { display: grid; place-items: center; flex: none; inline-size: 2.25rem; min-block-size: 2.25rem; block-size: 2.25rem; padding: 0; border-color: transparent; border-radius: 50%; background: none; }
svg { flex: none; inline-size: 1.25rem; block-size: 1.25rem; vertical-align: middle; fill: none; stroke: currentColor; stroke-width: 1.75; stroke-linecap: round; stroke-linejoin: round; }
:focus-visible { outline: 2px solid var(--accent); outline-offset: 2px; }
.log:focus-visible, pre:focus-visible { outline-offset: -3px; }
:is(input, textarea, select):focus-visible { outline-offset: -1px; }
a { color: var(--accent); overflow-wrap: anywhere; }
.note { color: var(--muted); font-size: .875rem; font-variant-numeric: tabular-nums; }
.why { color: var(--bad); overflow-wrap: anywhere; }
:is(.note, .why, .files, .tools):empty { display: none; }
`;
