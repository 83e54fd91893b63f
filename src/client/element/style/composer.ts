/** Where the user writes. */
export const COMPOSER = `
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
