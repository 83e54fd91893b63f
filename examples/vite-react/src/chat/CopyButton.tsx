import { useEffect, useState } from 'react';
import { IconButton } from '../ui/IconButton.tsx';

interface Props {
  readonly label: string;
  readonly text: string;
}

export function CopyButton({ label, text }: Props) {
  const [isCopied, setIsCopied] = useState(false);
  useEffect(() => {
    if (!isCopied) return;
    const timer = setTimeout(() => setIsCopied(false), 2_000);
    return () => clearTimeout(timer);
  }, [isCopied]);

  async function copy() {
    // Browsers refuse it without a press of the user, and on a page without TLS.
    await navigator.clipboard?.writeText(text).then(
      () => setIsCopied(true),
      () => {},
    );
  }

  return <IconButton icon={isCopied ? 'done' : 'copy'} label={isCopied ? 'Copied' : label} onClick={copy} />;
}
