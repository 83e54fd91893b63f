/** Where the user writes. */
export const COMPOSER = `
.composer { margin-block-start: auto; padding-block: .25rem max(.75rem, env(safe-area-inset-bottom)); }
.composer > * + * { margin-block-start: .5rem; }
.box { display: grid; grid-template-columns: minmax(0, 1fr); border: 1px solid var(--line); border-radius: 1.5rem; background: var(--surface); box-shadow: 0 .25rem 1rem var(--shadow); cursor: text; }
.box:has(textarea:focus-visible) { outline: 2px solid var(--accent); outline-offset: -1px; }
.box textarea { min-block-size: 2.75rem; padding: .75rem 1.1rem .25rem; border: 0; border-radius: 1.5rem; background: none; outline: none; }
.tray { display: flex; align-items: center; gap: .5rem; padding: .25rem .5rem .5rem; }
.run { display: flex; margin-inline-start: auto; }
.run.running [part~="send"] { display: none; }
.run .primary, .run .primary:hover { color: var(--on-accent); border-color: var(--accent); background: var(--accent); }
.box:has(textarea:placeholder-shown):not(:has(.files li)) [part~="send"] { color: var(--muted); border-color: var(--line); background: var(--line); }
.run .primary[aria-disabled="true"] { color: var(--muted); border-color: var(--line); background: none; }
.run [part~="stop"] svg { fill: currentColor; }
.composer > .why:not(:empty) { padding: .6rem 1rem .25rem; border: 1px solid color-mix(in srgb, var(--bad) 35%, transparent); border-radius: 1rem; background: var(--surface); font-size: .95rem; }
.files { display: flex; align-items: start; flex-wrap: wrap; gap: .5rem; max-block-size: 30vh; padding: .6rem .6rem 0; overflow-y: auto; }
.files li { display: flex; align-items: center; gap: .5rem; min-block-size: 2.75rem; max-inline-size: min(18rem, 100%); padding-inline: .75rem .15rem; border: 1px solid var(--line); border-radius: .9rem; background: var(--page); font-size: .9rem; }
.files .name { flex: 0 1 auto; min-inline-size: 3rem; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.files .note { flex: 0 0 auto; font-size: .8rem; }
.files li[data-state="error"] { flex-wrap: wrap; border-color: color-mix(in srgb, var(--bad) 35%, transparent); }
.files li[data-state="error"] .name { flex: 1 1 5rem; }
.files li[data-state="error"] .note { flex: 1 1 100%; order: 1; padding-block-end: .35rem; color: var(--bad); overflow-wrap: anywhere; }
.files .icon { margin-inline-start: auto; color: var(--muted); }
.files .icon svg { inline-size: 1rem; }
.files .thumbnail { inline-size: 2.25rem; block-size: 2.25rem; margin-inline-start: -.45rem; border-radius: .6rem; object-fit: cover; }
`;
