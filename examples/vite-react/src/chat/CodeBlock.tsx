import { isValidElement, type ReactNode } from 'react';
import { CopyButton } from './CopyButton.tsx';

interface Code {
  readonly className?: string;
  readonly children?: ReactNode;
}

/** A block of code with its language. `children` is the element `code`. */
export function CodeBlock({ children }: { readonly children?: ReactNode }) {
  const { className = '', children: text } = isValidElement<Code>(children) ? children.props : {};
  const language = /language-(\S+)/.exec(className)?.[1];
  return (
    <div className="overflow-hidden rounded-xl border border-line bg-side">
      <div className="flex items-center justify-between border-b border-line ps-4 pe-1 text-xs text-muted">
        <span>{language ?? 'code'}</span>
        <CopyButton label="Copy code" text={String(text).trimEnd()} />
      </div>
      <pre>{children}</pre>
    </div>
  );
}
