import { useSession } from 'bot-relay-client/react';
import { Failure } from '../ui/Failure.tsx';
import { IconButton } from '../ui/IconButton.tsx';

/** Who is signed in, and the way out. */
export function Account({ name }: { readonly name: string }) {
  const { error, signOut } = useSession();
  return (
    <div className="grid gap-3 border-t border-line p-4">
      <Failure error={error} />
      <div className="flex items-center gap-3">
        <span
          className="grid size-9 shrink-0 place-content-center rounded-full bg-accent font-semibold text-on-accent uppercase"
          aria-hidden="true"
        >
          {name.slice(0, 1)}
        </span>
        <span className="min-w-0 grow truncate font-medium">{name}</span>
        <IconButton icon="signOut" label="Sign out" onClick={signOut} />
      </div>
    </div>
  );
}
