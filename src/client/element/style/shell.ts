/** The frame of the chat: list of chats, header, empty state, sign-in. What depends on the size asks for the element's, not the window's. */
export const SHELL = `
.chat { display: flex; position: absolute; inset: 0; overflow: hidden; background: var(--page); }
.chat[data-dropping]::after { content: attr(data-dropping); position: absolute; inset: .5rem; z-index: 3; display: grid; place-items: center; font-weight: 600; background: color-mix(in srgb, var(--page) 85%, transparent); border: 2px dashed var(--accent); border-radius: 1rem; pointer-events: none; }
.main { display: flex; flex-direction: column; flex: 1 1 0; min-inline-size: 0; block-size: 100%; }
.main > * { inline-size: 100%; padding-inline: max(1rem, calc((100% - var(--column)) / 2)); }

.side { display: none; flex-direction: column; flex: none; inline-size: 17rem; block-size: 100%; background: var(--surface); }
.side-head { display: flex; align-items: center; gap: .25rem; min-block-size: 3.25rem; padding: .5rem; }
.side-head > :first-child { flex: 1; display: flex; align-items: center; gap: .6rem; border-color: transparent; background: none; text-align: start; }
.side-head > :first-child:hover { background: var(--own); }
.chat-list { display: flex; flex-direction: column; flex: 1 1 0; overflow-y: auto; overscroll-behavior: contain; padding: .25rem .5rem .75rem; }
.chat-list .note { margin-block-start: auto; padding: .75rem; font-size: .8rem; }
.chat-list ul:empty ~ .note { margin-block-start: 0; }
.chat-list .why { padding: .5rem .75rem; }
.chat-list li { display: flex; align-items: center; border-radius: .75rem; margin-block-end: .125rem; }
.chat-list li:is(:hover, :focus-within, :has([aria-current])) { background: var(--own); }
.chat-list li > button { flex: 1 1 0; min-inline-size: 0; border-color: transparent; background: none; text-align: start; }
.chat-list li span { display: block; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; text-align: left; }
[dir="rtl"] .chat-list li span { text-align: right; }
.chat-list li > button:focus-visible { outline-offset: -3px; }
.row-actions { display: flex; flex: none; inline-size: 0; overflow: hidden; }
.chat-list li:is(:hover, :focus-within) .row-actions { inline-size: auto; overflow: visible; }
.row-actions .icon { color: var(--muted); }
.row-actions .icon:hover { color: var(--text); }
@media (hover: none) { .row-actions { inline-size: auto; } }
.side[data-open] { display: flex; position: absolute; inset-block: 0; inset-inline-start: 0; z-index: 2; inline-size: min(19rem, 88%); box-shadow: 0 0 3rem #0006; }
.chat:has(> .side[data-open])::before { content: ""; position: absolute; inset: 0; z-index: 1; background: #0006; }

[dir="rtl"] :is(.show-chats, [part~="hide-chats"], [part~="rename-chat"]) svg { scale: -1 1; }

header { position: relative; z-index: 1; display: flex; flex: none; align-items: center; gap: .5rem; min-block-size: 3.25rem; }
.main > header { padding: .4rem .75rem; }
header .avatar { inline-size: 1.75rem; font-size: .9rem; }
header h2 { flex: 0 1 auto; min-inline-size: 0; font-size: 1rem; font-weight: 600; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
header select { flex: 0 1 auto; field-sizing: content; min-inline-size: 4rem; max-inline-size: 14rem; margin-inline-start: -.25rem; padding-inline: .5rem; border-color: transparent; background: transparent; font-size: 1rem; font-weight: 600; text-align: start; text-overflow: ellipsis; }
header select:hover { background: var(--surface); }
header .space { flex: 1 1 0; }
.main > .why { flex: none; padding-block: .5rem; font-size: .9rem; text-align: center; }
:is(.main > .why, .sign-in) .more { margin-inline: auto; }
header details { flex: none; }
summary::-webkit-details-marker { display: none; }
summary { list-style: none; }
.account { display: grid; place-items: center; inline-size: 2.25rem; block-size: 2.25rem; border-radius: 50%; cursor: pointer; font-size: .9rem; font-weight: 600; color: var(--text); background: var(--own); }
.menu { position: absolute; inset-inline-end: .75rem; inset-block-start: calc(100% - .25rem); display: grid; gap: .25rem; min-inline-size: 12rem; max-inline-size: calc(100% - 1.5rem); padding: .4rem; border: 1px solid var(--line); border-radius: 1rem; background: var(--page); box-shadow: 0 .75rem 2rem var(--shadow); }
.menu .note { padding: .4rem .6rem; overflow-wrap: anywhere; }
.menu button { border-color: transparent; background: none; text-align: start; padding-inline: .6rem; }
.menu button:hover { background: var(--surface); }

.avatar { display: inline-grid; place-items: center; flex: none; inline-size: 1.75rem; aspect-ratio: 1; border-radius: 50%; overflow: hidden; font-weight: 600; line-height: 1; color: var(--on-accent); background: var(--accent); }
.avatar:has(img) { background: none; border-radius: .4rem; }
.avatar img { inline-size: 100%; block-size: 100%; object-fit: contain; }

.log { flex: 1 1 0; min-block-size: 6rem; overflow-y: auto; overscroll-behavior: contain; padding-block: 1rem; }
.main > p.note { flex: 1 1 0; align-content: center; text-align: center; }
.empty { flex: 1 1 0; display: flex; flex-direction: column; gap: 1rem; padding-block-end: .75rem; overflow-y: auto; }
.greeting { display: grid; justify-items: center; gap: 1rem; margin-block: auto; padding-block: 1rem; text-align: center; }
.greeting .avatar { inline-size: 3.5rem; font-size: 1.6rem; }
.greeting h3 { font-size: 1.5rem; font-weight: 600; line-height: 1.25; }
.empty ul { display: grid; gap: .6rem; grid-template-columns: repeat(2, minmax(0, 1fr)); }
.empty li { display: grid; }
.empty li:last-child:nth-child(odd) { grid-column: 1 / -1; }
.empty li button { padding: .7rem 1rem; border-radius: 1rem; text-align: start; line-height: 1.4; }
.empty li button:hover { background: var(--surface); }

.main > .sign-in { display: grid; gap: 1rem; margin: auto; padding: 2rem; inline-size: min(25rem, 100% - 2rem); overflow-y: auto; border: 1px solid var(--line); border-radius: 1.5rem; box-shadow: 0 .5rem 2rem var(--shadow); }
.sign-in .avatar { inline-size: 2.75rem; font-size: 1.25rem; justify-self: center; }
.sign-in h3 { font-size: 1.15rem; font-weight: 600; text-align: center; }
.sign-in label { display: grid; gap: .3rem; }
.sign-in label > span { font-size: .9rem; font-weight: 600; }
.sign-in :is(.note, .why) { text-align: center; }
.failed { align-items: center; justify-content: center; padding: 1rem; }
.failed .trouble { max-inline-size: 30rem; border-radius: 1rem; }

dialog { inline-size: min(26rem, 100% - 2rem); padding: 1.5rem; border: 1px solid var(--line); border-radius: 1.25rem; color: inherit; background: var(--page); box-shadow: 0 1rem 3rem #0004; }
dialog::backdrop { background: #0006; }
dialog form { display: grid; gap: .75rem; }
dialog h2 { font-size: 1.1rem; font-weight: 600; }
dialog p { overflow-wrap: anywhere; }
.choice { display: flex; flex-wrap: wrap; justify-content: flex-end; gap: .5rem; margin-block-start: .5rem; }
@media (prefers-reduced-motion: no-preference) {
  .side[data-open], .menu, dialog { animation: appear .15s ease-out; }
}
@keyframes appear { from { opacity: 0; } }
@media (forced-colors: active) {
  .question .text, .trouble, .avatar, .account { border: 1px solid; }
  .side { border-inline-end: 1px solid; }
  .chat-list li:has([aria-current]) { outline: 2px solid Highlight; outline-offset: -2px; }
  button[aria-pressed="true"] { border: 3px solid Highlight; }
}
@container bot-chat (inline-size >= 52rem) {
  .side, .side[data-open] { display: flex; position: static; inline-size: 17rem; box-shadow: none; }
  .chat:has(> .side[data-open])::before { content: none; }
  .side:not([hidden]) + .main header :is(.show-chats, [part~="new-chat"]) { display: none; }
}
@container bot-chat (inline-size < 36rem) {
  .empty ul { grid-template-columns: minmax(0, 1fr); }
  .greeting h3 { font-size: 1.3rem; }
}
@container bot-chat (inline-size < 24rem) {
  .main > *, .main > header { padding-inline: .75rem; }
  .main > .sign-in { padding: 1.25rem; inline-size: calc(100% - 1.5rem); }
  header { gap: .25rem; }
}
@container bot-chat (block-size < 26rem) {
  .main { overflow-y: auto; }
  .main > * { flex-shrink: 0; flex-basis: auto; }
  .main > :is(.log, .empty, .sign-in) { overflow: visible; }
}
`;
