import type { ComponentProps } from 'react';
import { Icon, type IconName } from './Icon.tsx';

interface Props extends Omit<ComponentProps<'button'>, 'aria-label' | 'title' | 'children'> {
  readonly icon: IconName;
  readonly label: string;
}

/** A button that shows an icon, and its label on hover and to screen readers. */
export function IconButton({ icon, label, className = '', ...props }: Props) {
  return (
    <button
      type="button"
      aria-label={label}
      title={label}
      className={`grid size-9 shrink-0 place-content-center rounded-lg text-muted hover:bg-bubble hover:text-ink pointer-coarse:size-11 ${className}`}
      {...props}
    >
      <Icon name={icon} />
    </button>
  );
}
