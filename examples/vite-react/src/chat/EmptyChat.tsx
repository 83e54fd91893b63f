import { BRAND } from '../brand.ts';
import { Logo } from '../ui/Logo.tsx';

/** What a user can begin with. */
export function EmptyChat({ onChoose }: { readonly onChoose: (text: string) => void }) {
  return (
    <div className="flex min-h-0 grow flex-col overflow-y-auto p-4">
      <div className="m-auto grid w-full max-w-2xl gap-8">
        <div className="grid justify-items-center gap-5 text-center">
          <Logo className="size-14" />
          <h2 className="text-3xl font-semibold tracking-tight text-balance">{BRAND.greeting}</h2>
        </div>
        <ul className="grid gap-3 sm:grid-cols-2">
          {BRAND.suggestions.map((text) => (
            <li key={text}>
              <button
                type="button"
                className="min-h-12 w-full rounded-2xl border border-line bg-raised px-4 py-3 text-start hover:border-accent hover:bg-bubble"
                onClick={() => onChoose(text)}
              >
                {text}
              </button>
            </li>
          ))}
        </ul>
      </div>
    </div>
  );
}
