import type { ComponentProps } from 'react';

export function Field({ label, ...props }: ComponentProps<'input'> & { readonly label: string }) {
  return (
    <label className="grid gap-1.5 text-sm font-medium">
      {label}
      <input
        required
        className="min-h-12 rounded-xl border border-line bg-raised px-4 text-base font-normal"
        {...props}
      />
    </label>
  );
}
