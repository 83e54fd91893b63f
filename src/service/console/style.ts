/** The sheet of all pages of the console. */
export const STYLE = `:root {
  color-scheme: light dark;
  --text: light-dark(#1b2430, #e6eaf0);
  --faint: light-dark(#55606e, #a7b1be);
  --page: light-dark(#f5f7f9, #12161c);
  --card: light-dark(#ffffff, #1b212a);
  --line: light-dark(#d3dae2, #343e4b);
  --edge: light-dark(#7a8694, #7f8b99);
  --link: light-dark(#1f5aa8, #8ab8f5);
  --main: light-dark(#1f5aa8, #2b66b8);
  --good: light-dark(#1a6b3a, #7fd6a0);
  --bad: light-dark(#a8261d, #ff9d92);
}
*, ::before, ::after { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
header, nav, main { max-inline-size: 56rem; margin-inline: auto; padding-inline: 1rem; }
header { display: flex; flex-wrap: wrap; gap: .5rem 1rem; align-items: center; justify-content: space-between; padding-block: .75rem; }
.brand { color: inherit; font-weight: 650; text-decoration: none; padding-block: .25rem; }
nav p { margin: 0; color: var(--faint); font-size: .875rem; }
nav ul { display: flex; flex-wrap: wrap; gap: 0 1.25rem; margin: 0; padding: 0; list-style: none; border-block-end: 1px solid var(--line); }
nav a { display: block; padding-block: .5rem; color: inherit; text-decoration: none; border-block-end: 3px solid transparent; }
nav a:hover { border-color: var(--line); }
nav a[aria-current] { border-color: var(--link); font-weight: 600; }
main { padding-block: 1.5rem 4rem; }
main:focus { outline: none; }
h1 { font-size: 1.625rem; line-height: 1.25; margin: 0 0 1rem; }
h2 { font-size: 1.1875rem; line-height: 1.3; margin: 0 0 .5rem; }
h3 { font-size: 1rem; margin: 0 0 .25rem; }
p { margin: 0 0 .75rem; max-inline-size: 44rem; }
a { color: var(--link); }
code, .code { font-family: ui-monospace, monospace; font-size: .9375em; }
section { margin-block-start: 2.25rem; padding-block-start: 1.5rem; border-block-start: 1px solid var(--line); }
h1 + section { margin-block-start: 0; padding-block-start: 0; border: 0; }
form + form { margin-block-start: 1.5rem; }
.rows { display: grid; gap: .75rem; margin: 0 0 1rem; padding: 0; list-style: none; }
.rows > li { display: flex; flex-wrap: wrap; gap: .25rem 1.5rem; align-items: center; justify-content: space-between; padding: .875rem 1rem; background: var(--card); border: 1px solid var(--line); border-radius: .5rem; }
.rows h2, .rows h3 { flex: 1 0 100%; margin: 0; font-size: 1.0625rem; font-weight: 600; }
.rows h3:has(+ .buttons) { flex: 1; }
.rows p { flex: 1 0 100%; margin: 0; }
dl { display: flex; flex-wrap: wrap; gap: .25rem 1.75rem; margin: 0; }
dt { color: var(--faint); font-size: .875rem; }
dd { margin: 0; }
.field { display: flex; flex-direction: column; gap: .25rem; max-inline-size: 36rem; margin-block-end: 1rem; }
.field label, legend { font-weight: 600; }
.hint { margin: 0; color: var(--faint); font-size: .875rem; }
.check { display: grid; grid-template-columns: 1.5rem 1fr; gap: 0 .5rem; align-items: center; min-block-size: 2rem; }
.check input { inline-size: 1.25rem; block-size: 1.25rem; margin: 0; accent-color: var(--main); }
fieldset { max-inline-size: 36rem; margin: 0 0 1rem; padding: .75rem 1rem; border: 1px solid var(--line); border-radius: .5rem; min-inline-size: 0; }
fieldset > :last-child { margin-block-end: 0; }
input:not([type=checkbox]), textarea, select { inline-size: 100%; min-block-size: 2.5rem; padding: .4375rem .625rem; color: inherit; background: var(--card); border: 1px solid var(--edge); border-radius: .375rem; font: inherit; }
.whole { white-space: nowrap; }
input.code { font-family: ui-monospace, monospace; font-size: .9375rem; }
textarea { resize: vertical; }
input[aria-invalid], textarea[aria-invalid], select[aria-invalid] { border-color: var(--bad); border-width: 2px; }
button, .button { display: inline-flex; align-items: center; min-block-size: 2.5rem; padding: .375rem .9375rem; color: #fff; background: var(--main); border: 1px solid var(--main); border-radius: .375rem; font: inherit; font-weight: 550; text-decoration: none; cursor: pointer; }
.plain { color: var(--link); background: transparent; border-color: var(--edge); }
.danger { color: var(--bad); background: transparent; border-color: var(--bad); }
button:hover, .button:hover { filter: brightness(1.1); text-decoration: underline; }
.buttons { display: flex; flex-wrap: wrap; gap: .5rem .75rem; align-items: center; }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
.faults, .report, .done { margin-block: 0 1.25rem; padding: .75rem 1rem; background: var(--card); border: 1px solid var(--line); border-inline-start: .375rem solid var(--link); border-radius: .375rem; max-inline-size: 44rem; }
.faults, .report.bad { border-inline-start-color: var(--bad); }
.report.good, .done { border-inline-start-color: var(--good); }
.faults ul { margin: 0; padding-inline-start: 1.25rem; }
.faults a, .fault, dd .bad { color: var(--bad); }
.fault { margin: 0; font-weight: 600; }
dd .good { color: var(--good); }
.report { margin-block: 1rem; }
.report p:last-child { margin: 0; }
.report + section { margin-block-start: 0; }
.said { white-space: pre-wrap; }
progress { inline-size: 100%; accent-color: var(--main); }
.unseen { position: absolute; inline-size: 1px; block-size: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
.skip { position: absolute; inset-inline-start: -999rem; }
.skip:focus { inset: .5rem auto auto .5rem; padding: .5rem; background: var(--card); }
`;

/** A key. */
export const ICON =
  '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><path fill="#2b66b8" d="M5 4a4 4 0 1 1-.001 8A4 4 0 0 1 5 4m0 2.500a1.500 1.500 0 1 0 .001 3 1.500 1.500 0 0 0-.001-3M8.500 7H16v4h-2V9h-1.500v2h-2V9h-2z"/></svg>';
