/** The conversation: questions, answers, and what belongs to them. */
export const MESSAGES = `
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
.actions { display: flex; flex-wrap: wrap; gap: .35rem; }
.actions { margin-inline-start: -.6rem; }
.actions button { min-block-size: 2.25rem; padding: .1rem .6rem; color: var(--muted); border-color: transparent; background: none; }
.actions button:is(:hover, [aria-pressed="true"]) { border-color: var(--edge); color: var(--text); }
.down svg { rotate: 180deg; }
@media (prefers-reduced-motion: no-preference) {
  .answer[data-state="streaming"] .answer-text > ::after { animation: blink 1.2s steps(2, jump-none) infinite; }
}
@keyframes blink { to { opacity: 0; } }
`;
