/** Colours and the font, which a page changes by the properties on the left. */
const VARIABLES = `
:host {
  --accent: var(--bot-chat-accent, #2459a9); --on-accent: var(--bot-chat-on-accent, #fff);
  --page: var(--bot-chat-background, #f6f6f4); --surface: var(--bot-chat-surface, #fff);
  --text: var(--bot-chat-text, #1d2126); --muted: var(--bot-chat-muted, #59626d);
  --own: var(--bot-chat-own, #e3ebf7); --bad: var(--bot-chat-error, #9f2018);
  --line: #dddfe2; --edge: #7f8791;
  color-scheme: light dark; display: block; block-size: 100%; min-block-size: 16rem;
  color: var(--text); background: var(--page);
  font: 100% / 1.55 var(--bot-chat-font, system-ui, sans-serif);
}
@media (prefers-color-scheme: dark) {
  :host {
    --accent: var(--bot-chat-accent-dark, #8fb8f6); --on-accent: var(--bot-chat-on-accent-dark, #0d1b2f);
    --page: var(--bot-chat-background-dark, #14171b); --surface: var(--bot-chat-surface-dark, #1d2127);
    --text: var(--bot-chat-text-dark, #e7e9ec); --muted: var(--bot-chat-muted-dark, #a5aeb9);
    --own: var(--bot-chat-own-dark, #263750); --bad: var(--bot-chat-error-dark, #ffa39a);
    --line: #30363e; --edge: #737d89;
  }
}
:host([hidden]), [hidden] { display: none !important; }
*, *::before, *::after { box-sizing: border-box; }
h2, h3, p, ul, ol, pre, blockquote { margin: 0; padding: 0; }
ul, ol { list-style: none; }
.unseen { position: absolute; inline-size: 1px; block-size: 1px; overflow: hidden; clip-path: inset(50%); }
`;

const CONTROLS = `
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

const LAYOUT = `
.chat { display: flex; flex-direction: column; block-size: 100%; position: relative; }
.chat > * { inline-size: 100%; padding-inline: max(1rem, calc((100% - 46rem) / 2)); }
.chat[data-dropping] { outline: 3px dashed var(--accent); outline-offset: -6px; }
header { display: flex; flex-wrap: wrap; align-items: center; gap: .5rem; padding-block: .5rem; border-block-end: 1px solid var(--line); }
header h2 { flex: 1 1 auto; font-size: 1rem; overflow-wrap: anywhere; }
header .why { flex-basis: 100%; }
header { position: relative; z-index: 1; }
.chat > header > button, summary.button { border-color: transparent; background: none; }
.chat > header > button:hover, summary.button:hover, [open] > summary.button { border-color: var(--edge); background: var(--surface); }
select { max-inline-size: 12rem; margin-inline-end: auto; font-weight: 600; text-align: start; }
summary { display: flex; align-items: center; white-space: nowrap; }
summary::-webkit-details-marker { display: none; }
.panel { position: absolute; inset-inline: auto max(.75rem, calc((100% - 46rem) / 2)); inset-block-start: 100%; display: grid; grid-template-columns: 100%; gap: .5rem; inline-size: min(24rem, 100% - 1.5rem); max-block-size: 65vh; overflow-y: auto; padding: .75rem; border: 1px solid var(--line); border-radius: .6rem; background: var(--surface); box-shadow: 0 .75rem 2rem #0004; }
.panel li button { display: flex; align-items: baseline; justify-content: space-between; gap: .75rem; inline-size: 100%; border-color: transparent; text-align: start; }
.panel li button:is(:hover, [aria-current]) { background: var(--own); }
.panel span { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.panel time { flex: none; }
.panel > button { color: var(--bad); border-color: var(--line); }
.who { overflow: hidden; text-overflow: ellipsis; max-inline-size: 40%; }
.log { flex: 1 1 0; min-block-size: 6rem; overflow-y: auto; overscroll-behavior: contain; padding-block: 1rem; }
.messages > li + li { margin-block-start: 1.25rem; }
.messages > li { content-visibility: auto; contain-intrinsic-size: auto 6rem; padding: .25rem; }
.chat > p.note { flex: 1 1 0; padding-block: 1rem; }
.empty { flex: 1 1 0; display: flex; flex-direction: column; justify-content: center; gap: 1rem; text-align: center; overflow-y: auto; }
.empty ul { display: flex; flex-wrap: wrap; justify-content: center; gap: .5rem; }
.chat > .sign-in { display: grid; gap: .75rem; margin: auto; padding: 1rem; inline-size: min(26rem, 100%); overflow-y: auto; }
.sign-in label { display: grid; gap: .25rem; }
.sign-in span { font-weight: 600; }
.composer { margin-block-start: auto; padding-block: .6rem max(.6rem, env(safe-area-inset-bottom)); border-block-start: 1px solid var(--line); }
.composer > * + * { margin-block-start: .5rem; }
.tray { display: flex; flex-wrap: wrap; align-items: center; gap: .5rem; }
.tray .note { flex: 1 1 8rem; font-size: .8rem; }
.run { display: flex; gap: .5rem; margin-inline-start: auto; }
.files { display: flex; flex-wrap: wrap; gap: .5rem; max-block-size: 30vh; overflow-y: auto; }
.files li { padding-inline: .75rem; border: 1px solid var(--line); border-radius: .6rem; overflow-wrap: anywhere; }
.files li[data-state="error"] .note { color: var(--bad); }
.files button { border: 0; background: none; min-inline-size: 2.5rem; margin-inline-end: -.75rem; }
`;

const MESSAGES = `
.head { font-size: .8rem; color: var(--muted); overflow-wrap: anywhere; }
.question { display: grid; justify-items: end; margin-inline-start: auto; inline-size: fit-content; max-inline-size: 85%; }
.question .text { padding: .5rem .9rem; border-radius: .9rem; background: var(--own); white-space: pre-wrap; overflow-wrap: anywhere; }
.answer > * + * { margin-block-start: .4rem; }
.answer-text { overflow-wrap: anywhere; }
.answer-text > * + * { margin-block-start: .75rem; }
.answer-text h3 { font-size: 1.05rem; }
.answer-text h3[data-depth="1"] { font-size: 1.25rem; }
.answer-text :is(ul, ol) { padding-inline-start: 1.5rem; }
.answer-text ul { list-style: disc; }
.answer-text ol { list-style: decimal; }
.answer-text blockquote { padding-inline-start: .9rem; border-inline-start: 3px solid var(--edge); }
.answer-text hr { border: 0; border-block-start: 1px solid var(--edge); }
code, pre { font: .9em ui-monospace, monospace; }
:not(pre) > code { padding: .1em .3em; border-radius: .3em; background: var(--own); }
.code { border: 1px solid var(--line); border-radius: .6rem; background: var(--surface); overflow: hidden; }
.code-head { display: flex; align-items: center; justify-content: space-between; padding-inline: .9rem .3rem; border-block-end: 1px solid var(--line); font-size: .8rem; color: var(--muted); }
.code-head button { border: 0; background: none; color: inherit; }
pre { padding: .75rem .9rem; overflow-x: auto; line-height: 1.45; }
.table { overflow-x: auto; overflow-wrap: normal; }
table { border-collapse: collapse; }
th, td { padding: .3rem .7rem; border: 1px solid var(--line); text-align: start; }
[data-align="right"] { text-align: end; } [data-align="center"] { text-align: center; }
.answer[data-state="streaming"] .answer-text > :last-child:is(p, h3)::after,
.answer[data-state="streaming"] .answer-text > :last-child > li:last-child::after {
  content: ""; display: inline-block; inline-size: .5em; block-size: 1em; margin-inline-start: .2em;
  vertical-align: text-bottom; background: var(--accent);
}
.consent, .trouble { display: flex; flex-wrap: wrap; align-items: center; gap: .5rem; padding: .75rem .9rem; border: 1px solid var(--line); border-radius: .6rem; background: var(--surface); }
.consent p, .trouble p { flex-basis: 100%; }
.tool { color: var(--muted); font-size: .875rem; }
.trouble { border-color: var(--bad); background: var(--surface); }
:host > .trouble { margin: 1rem; }
.actions { display: flex; flex-wrap: wrap; gap: .35rem; }
.actions { margin-inline-start: -.6rem; }
.actions button { min-block-size: 2.25rem; padding: .1rem .6rem; color: var(--muted); border-color: transparent; background: none; }
.actions button:is(:hover, [aria-pressed="true"]) { border-color: var(--edge); color: var(--text); }
svg { inline-size: 1.25em; block-size: 1.25em; vertical-align: middle; fill: none; stroke: currentColor; stroke-width: 1.75; }
.down svg { rotate: 180deg; }
@media (prefers-reduced-motion: no-preference) {
  .answer[data-state="streaming"] .answer-text > ::after { animation: blink 1.2s steps(2, jump-none) infinite; }
}
@keyframes blink { to { opacity: 0; } }
@media (forced-colors: active) {
  .question .text, .trouble { border: 1px solid; }
  button[aria-pressed="true"] { border: 3px solid Highlight; }
}
@media (max-width: 24rem) {
  .tray .note, .who { display: none; }
  .chat > * { padding-inline: .75rem; }
  .tray, header { gap: .3rem; }
  header { justify-content: flex-end; }
  .actions { gap: 0; }
  .actions button { padding-inline: .5rem; }
  .chat > header > button, summary.button, .chat > header > select { padding-inline: .25rem; font-size: .85rem; }
  header select { flex: 1 1 4rem; min-inline-size: 0; max-inline-size: 8rem; }
}
@media (max-height: 26rem) {
  .chat { overflow-y: auto; }
  .chat > * { flex-shrink: 0; flex-basis: auto; }
  .chat > :is(.log, .empty, .sign-in) { overflow: visible; }
}
`;

let sheet: CSSStyleSheet | undefined;

/** The style sheet that all chats of a page share. */
export function chatStyle(): CSSStyleSheet {
  if (!sheet) {
    sheet = new CSSStyleSheet();
    sheet.replaceSync(VARIABLES + CONTROLS + LAYOUT + MESSAGES);
  }
  return sheet;
}
