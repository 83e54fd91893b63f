/**
 * Colours, spaces and the font. A page changes the colours by the properties `--bot-chat-…`; those that end in `-dark` are
 * for the dark scheme. Which scheme it is, `color-scheme` decides: the page's own, or that of the attribute `theme`.
 */
export const THEME = `
:host {
  --accent: light-dark(var(--bot-chat-accent, #1f5fbf), var(--bot-chat-accent-dark, #8fb8f6));
  --on-accent: light-dark(var(--bot-chat-on-accent, #ffffff), var(--bot-chat-on-accent-dark, #0d1b2f));
  --page: light-dark(var(--bot-chat-background, #ffffff), var(--bot-chat-background-dark, #17191d));
  --surface: light-dark(var(--bot-chat-surface, #f5f6f8), var(--bot-chat-surface-dark, #202329));
  --text: light-dark(var(--bot-chat-text, #1b1e23), var(--bot-chat-text-dark, #e8eaed));
  --muted: light-dark(var(--bot-chat-muted, #5a626d), var(--bot-chat-muted-dark, #a6aeb9));
  --own: light-dark(var(--bot-chat-own, #eaf0f9), var(--bot-chat-own-dark, #2a3648));
  --bad: light-dark(var(--bot-chat-error, #a3231b), var(--bot-chat-error-dark, #ffa39a));
  --line: light-dark(#e2e5e9, #32373f);
  --edge: light-dark(#7f8791, #737d89);
  --shadow: light-dark(#1b1e2314, #00000066);
  --column: 46rem;
  /* The last is its size where the page gives it none. */
  display: block; position: relative; block-size: 100%; min-block-size: 16rem; container: bot-chat / size; contain-intrinsic-size: 24rem 36rem;
  color: var(--text); background: var(--page);
  font: 100% / 1.6 var(--bot-chat-font, system-ui, sans-serif);
}
:host([theme="light"]) { color-scheme: light; }
:host([theme="dark"]) { color-scheme: dark; }
:host([hidden]), [hidden] { display: none !important; }
*, *::before, *::after { box-sizing: border-box; }
h2, h3, p, ul, ol, pre, blockquote { margin: 0; padding: 0; }
ul, ol { list-style: none; }
.unseen { position: absolute; inline-size: 1px; block-size: 1px; overflow: hidden; clip-path: inset(50%); }
`;
