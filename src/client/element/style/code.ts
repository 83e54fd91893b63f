/** The colours of code, by the classes of highlight.js, and the layout of math that browsers leave to the page. */
export const CODE = `
.hljs-comment, .hljs-quote, .hljs-meta { color: var(--muted); }
.hljs-keyword, .hljs-doctag, .hljs-template-tag, .hljs-selector-tag, .hljs-name, .hljs-section { color: light-dark(#9a1f6a, #f4a3d2); }
.hljs-string, .hljs-regexp, .hljs-addition, .hljs-link, .hljs-meta .hljs-string { color: light-dark(#1a6636, #93d6a5); }
.hljs-number, .hljs-literal, .hljs-symbol, .hljs-bullet, .hljs-variable, .hljs-template-variable, .hljs-subst .hljs-variable { color: light-dark(#8a4700, #f0bd7d); }
.hljs-title, .hljs-attr, .hljs-attribute, .hljs-property, .hljs-selector-id, .hljs-selector-class { color: light-dark(#1a55ad, #8fb8f6); }
.hljs-type, .hljs-built_in, .hljs-title.class_, .hljs-selector-attr, .hljs-selector-pseudo { color: light-dark(#693ca0, #cdb1f7); }
.hljs-deletion { color: light-dark(#a3231b, #ffa39a); }
.hljs-emphasis { font-style: italic; }
.hljs-strong { font-weight: 600; }
.math { overflow-x: auto; padding-block: .25rem; }
math { font-size: 1.1em; }
:is(mi, mtext, mn)[mathvariant] { text-transform: none; }
[mathvariant^="bold"] { font-weight: bold; }
[mathvariant^="sans"] { font-family: sans-serif; }
[mathvariant="monospace"] { font-family: ui-monospace, monospace; }
[mathvariant*="italic"] { font-style: italic; }
mtable:is([columnalign^="left"], [columnalign^="right left"]) > mtr > mtd { text-align: left; }
mtable[columnalign^="right left"] > mtr > mtd:nth-child(odd) { text-align: right; }
mtable[columnspacing="0em"] > mtr > mtd { padding-inline: 0; }
menclose[notation="box"] { border: 1px solid; padding: .2em .3em; }
menclose[notation*="strike"] { text-decoration: line-through; }
`;
