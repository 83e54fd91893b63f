/** The conversation: questions, answers, and what belongs to them. */
export const MESSAGES = `
.messages { display: grid; gap: .25rem; grid-template-columns: minmax(0, 1fr); margin-inline: -.5rem; }
.messages > li { content-visibility: auto; contain-intrinsic-size: auto 6rem; padding: .25rem .5rem; }
.day { grid-column: 1 / -1; justify-self: center; margin-block: .25rem 1rem; font-size: .8rem; font-weight: 400; text-align: center; color: var(--muted); }
.day::first-letter { text-transform: uppercase; }
.head { color: var(--muted); }
.head b { position: absolute; inline-size: 1px; block-size: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
.messages > li + .question { margin-block-start: .75rem; }
.question { display: grid; grid-template-columns: minmax(0, 1fr); justify-items: end; gap: .25rem; }
.question .text { max-inline-size: 80%; padding: .6rem 1rem; border-radius: 1.25rem; background: var(--own); white-space: pre-wrap; overflow-wrap: anywhere; }
.question .note { font-size: .8rem; }
.answer { position: relative; }
.messages > .answer { padding-inline-start: 3.25rem; }
.answer > .day { margin-inline-start: -2.75rem; }
.answer .head .avatar { position: absolute; inset-inline-start: .5rem; font-size: .9rem; }
.answer > * + * { margin-block-start: .5rem; }
.answer > .head + *, .answer > .head + .tools:empty + * { margin-block-start: 0; }
.answer-text { overflow-wrap: anywhere; }
.answer-text > * + * { margin-block-start: .75rem; }
.answer-text h3 { font-size: 1.05rem; line-height: 1.35; }
.answer-text > * + h3 { margin-block-start: 1.25rem; }
.answer-text h3[data-depth="1"] { font-size: 1.3rem; }
.answer-text h3[data-depth="2"] { font-size: 1.15rem; }
.answer-text li { margin-inline-start: 1.5rem; }
.answer-text li + li { margin-block-start: .25rem; }
.answer-text ul { list-style: disc; }
.answer-text ol { list-style: decimal; }
.answer-text li::marker { color: var(--muted); }
.answer-text blockquote { padding-inline-start: .9rem; border-inline-start: 3px solid var(--line); color: var(--muted); }
.answer-text hr { border: 0; border-block-start: 1px solid var(--line); }
code, pre { font: .9em ui-monospace, monospace; }
:not(pre) > code { padding: .15em .35em; border-radius: .35em; background: var(--own); }
.code { border: 1px solid var(--line); border-radius: .9rem; background: var(--surface); overflow: hidden; }
.code-head { display: flex; align-items: center; justify-content: space-between; min-block-size: 2.25rem; padding-inline: 1rem .25rem; font-size: .8rem; color: var(--muted); }
.code-head .icon { color: inherit; }
.code-head .icon:hover { color: var(--text); }
.code-head svg { inline-size: 1.1rem; }
pre { padding: .25rem 1rem .9rem; overflow-x: auto; line-height: 1.5; }
.table { overflow-x: auto; overflow-wrap: normal; }
table { border-collapse: collapse; min-inline-size: min(100%, 24rem); }
th, td { padding: .45rem .9rem .45rem 0; padding-inline: 0 .9rem; border-block-end: 1px solid var(--line); text-align: start; }
th { font-size: .9rem; color: var(--muted); }
[data-align="right"] { text-align: end; } [data-align="center"] { text-align: center; }
.answer[data-state="streaming"] .answer-text > :last-child:is(p, h3)::after,
.answer[data-state="streaming"] .answer-text > :last-child > li:last-child::after {
  content: ""; display: inline-block; inline-size: .5em; block-size: 1em; margin-inline-start: .2em;
  border-radius: 1em; vertical-align: text-bottom; background: var(--accent);
}

.dots { display: none; gap: .3rem; align-items: center; block-size: 1.75rem; }
.answer:is([data-state="submitted"], [data-silent]) .dots { display: flex; }
.dots i { inline-size: .45rem; block-size: .45rem; border-radius: 50%; background: var(--muted); opacity: .6; }

.trouble { display: flex; flex-wrap: wrap; align-items: center; gap: 0 .75rem; padding: .6rem 1rem .25rem; border-radius: 1rem; border: 1px solid color-mix(in srgb, var(--bad) 35%, transparent); background: var(--surface); font-size: .95rem; }
.trouble .why { flex: 1 1 14rem; }
.trouble > div:not(.why) { flex-basis: 100%; }
.trouble > div:empty { display: none; }
.trouble button { margin-block: .25rem; }
:host > .trouble { margin: 1rem; }
.details { font-size: .8rem; color: var(--muted); }
.more { display: flex; align-items: center; gap: .5rem; inline-size: fit-content; max-inline-size: 100%; min-block-size: 2.25rem; padding-inline-end: .25rem; cursor: pointer; overflow-wrap: anywhere; }
.more::after { content: ""; flex: none; inline-size: .4rem; block-size: .4rem; border: solid; border-width: 0 1.5px 1.5px 0; rotate: 45deg; translate: 0 -.1rem; }
[open] > .more::after { rotate: 225deg; translate: 0 .1rem; }
.more:hover { color: var(--text); }
.details dl { display: grid; grid-template-columns: auto minmax(0, 1fr); align-items: center; gap: .25rem .9rem; margin: 0; }
.details dd { display: flex; align-items: center; gap: .35rem; margin: 0; overflow-wrap: anywhere; }
.details .icon { margin-block: -.5rem; color: inherit; }

.tools { display: grid; gap: .4rem; grid-template-columns: minmax(0, 1fr); }
.tool { color: var(--muted); font-size: .875rem; }
.tool .line { display: flex; align-items: center; gap: .5rem; inline-size: fit-content; max-inline-size: 100%; min-block-size: 2.25rem; overflow-wrap: anywhere; }
.tool svg { inline-size: 1.1rem; }
.tool details > .note { margin-block: .4rem .2rem; font-size: .8rem; }
pre.value { max-block-size: 14rem; padding: .6rem .9rem; overflow: auto; border: 1px solid var(--line); border-radius: .75rem; background: var(--surface); white-space: pre-wrap; overflow-wrap: anywhere; font-size: .8rem; color: var(--text); }
.consent { display: flex; flex-wrap: wrap; gap: .6rem; padding: 1rem; border: 1px solid var(--line); border-radius: 1rem; background: var(--surface); }
.consent > :is(.ask, pre, details) { flex-basis: 100%; min-inline-size: 0; }
.consent .ask { display: flex; align-items: center; gap: .6rem; font-weight: 600; overflow-wrap: anywhere; }
.consent pre.value { background: var(--page); }
.consent .more { font-size: .875rem; color: var(--muted); }
.consent .primary, .consent .primary:hover { font-weight: 600; color: var(--on-accent); border-color: var(--accent); background: var(--accent); }

.actions { display: flex; flex-wrap: wrap; align-items: center; gap: .1rem; min-block-size: 2.25rem; color: var(--muted); }
.answer > .actions { margin-inline-start: -.5rem; margin-block-start: .1rem; }
.actions time { padding-inline: .4rem; font-size: .75rem; }
.actions .icon { color: inherit; }
.actions svg { inline-size: 1.1rem; }
.actions .icon:hover { color: var(--text); background: var(--surface); }
.actions .icon[aria-pressed="true"] { color: var(--accent); border-color: transparent; background: var(--own); }
.actions .icon[aria-pressed="true"] svg { fill: currentColor; fill-opacity: .25; stroke-width: 2.25; }
.down svg { rotate: 180deg; }
@media (hover: hover) {
  .messages > li:not(:hover, :focus-within) > .actions:not(.answer:last-child > *) { opacity: 0; }
  .messages > li:not(:hover, :focus-within) > .actions time { opacity: 0; }
}
.comment { display: grid; gap: .5rem; padding: .75rem; border: 1px solid var(--line); border-radius: 1rem; background: var(--surface); }
.comment .choice { margin: 0; display: flex; flex-wrap: wrap; justify-content: flex-end; gap: .5rem; }

.sent-files { display: flex; flex-wrap: wrap; justify-content: flex-end; gap: .5rem; max-inline-size: 80%; }
.sent-files li { min-inline-size: 0; max-inline-size: 100%; }
.file { display: flex; align-items: center; gap: .5rem; min-block-size: 2.5rem; max-inline-size: 18rem; padding-inline: .75rem; border: 1px solid var(--line); border-radius: .9rem; color: var(--text); font-size: .9rem; text-decoration: none; overflow: hidden; }
a.file:hover { background: var(--surface); }
.file span { overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.file:has(.thumbnail) { display: block; padding: 0; }
.file:has(.thumbnail) span { display: block; padding: .25rem .75rem; font-size: .8rem; color: var(--muted); }
.file .thumbnail { display: block; inline-size: 100%; max-block-size: 14rem; object-fit: cover; }

.to-end { position: sticky; inset-block-end: .25rem; block-size: 0; display: grid; justify-items: center; align-content: end; }
.to-end .icon { border-color: var(--line); background: var(--page); box-shadow: 0 .25rem 1rem var(--shadow); }
.to-end .icon:hover { background: var(--surface); }
@media (forced-colors: active) {
  .dots i, .answer[data-state="streaming"] .answer-text > ::after { forced-color-adjust: none; background: CanvasText; }
}
@media (prefers-reduced-motion: no-preference) {
  .answer[data-state="streaming"] .answer-text > ::after { animation: blink 1.2s steps(2, jump-none) infinite; }
  .dots i { animation: pulse 1.4s ease-in-out infinite; }
  .dots i:nth-child(2) { animation-delay: .2s; } .dots i:nth-child(3) { animation-delay: .4s; }
  .working svg { animation: pulse 1.4s ease-in-out infinite; }
  .actions { transition: opacity .15s; }
}
@keyframes blink { to { opacity: 0; } }
@keyframes pulse { 50% { opacity: .2; } }
@container bot-chat (inline-size < 36rem) {
  .messages > .answer { padding-inline-start: .5rem; }
  .answer > .day { margin-inline-start: 0; }
  .answer .head .avatar { display: none; }
  .question .text, .sent-files { max-inline-size: 88%; }
}
`;
