import { type ReactNode, useLayoutEffect, useRef } from 'react';

interface Props {
  readonly label: string;
  readonly className: string;
  readonly onClose: () => void;
  readonly children: ReactNode;
}

/** A dialog above the page while it is rendered. Escape and a press beside it close it. */
export function Modal({ label, className, onClose, children }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  useLayoutEffect(() => {
    const shown = dialog.current;
    if (!shown) return;
    const closeBeside = ({ target }: MouseEvent) => target === shown && shown.close();
    shown.showModal();
    shown.addEventListener('click', closeBeside);
    return () => {
      shown.removeEventListener('click', closeBeside);
      // Closed before it is removed, it gives the focus back.
      shown.close();
    };
  }, []);
  return (
    <dialog
      ref={dialog}
      aria-label={label}
      className={`text-ink backdrop:bg-black/40 backdrop:backdrop-blur-[2px] ${className}`}
      // Strict mode closes and opens it once.
      onClose={({ target, currentTarget }) => target === currentTarget && !currentTarget.open && onClose()}
    >
      {children}
    </dialog>
  );
}
