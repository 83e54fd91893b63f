import { memo } from 'react';
import ReactMarkdown, { type Components } from 'react-markdown';
import remarkGfm from 'remark-gfm';
import { CodeBlock } from './CodeBlock.tsx';

const COMPONENTS: Components = {
  a: ({ href, children }) => (
    <a href={href} target="_blank" rel="noreferrer">
      {children}
    </a>
  ),
  // A picture would tell its server who reads the answer.
  img: ({ src, alt }) => (
    <a href={src} target="_blank" rel="noreferrer">
      {alt || 'Picture'}
    </a>
  ),
  pre: ({ children }) => <CodeBlock>{children}</CodeBlock>,
  table: ({ children }) => (
    <div className="overflow-x-auto">
      <table className="w-full">{children}</table>
    </div>
  ),
};
const PLUGINS = [remarkGfm];

/** What a bot has written. HTML in it stays text. */
export const Markdown = memo(({ text }: { readonly text: string }) => (
  <div className="answer">
    <ReactMarkdown remarkPlugins={PLUGINS} components={COMPONENTS}>
      {text}
    </ReactMarkdown>
  </div>
));
