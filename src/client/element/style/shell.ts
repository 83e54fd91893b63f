/** The frame of the chat: header, list of chats, empty state, sign-in. What depends on the size asks for the element's, not the window's. */
export const SHELL = `
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
@media (forced-colors: active) {
  .question .text, .trouble { border: 1px solid; }
  button[aria-pressed="true"] { border: 3px solid Highlight; }
}
@container bot-chat (max-width: 24rem) {
  .tray .note, .who { display: none; }
  .chat > * { padding-inline: .75rem; }
  .tray, header { gap: .3rem; }
  header { justify-content: flex-end; }
  .actions { gap: 0; }
  .actions button { padding-inline: .5rem; }
  .chat > header > button, summary.button, .chat > header > select { padding-inline: .25rem; font-size: .85rem; }
  header select { flex: 1 1 4rem; min-inline-size: 0; max-inline-size: 8rem; }
}
@container bot-chat (max-height: 26rem) {
  .chat { overflow-y: auto; }
  .chat > * { flex-shrink: 0; flex-basis: auto; }
  .chat > :is(.log, .empty, .sign-in) { overflow: visible; }
}
`;
