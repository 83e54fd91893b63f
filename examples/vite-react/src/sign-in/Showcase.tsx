import { BRAND } from '../brand.ts';
import { Logo } from '../ui/Logo.tsx';

/** What the assistant is for, beside the form on a wide page. */
export function Showcase() {
  return (
    <section className="hidden flex-col justify-between gap-12 border-e border-line bg-side p-12 lg:flex xl:p-16">
      <p className="flex items-center gap-3 font-semibold">
        <Logo />
        {BRAND.name}
      </p>
      <div className="grid max-w-lg gap-8">
        <p className="text-4xl leading-tight font-semibold tracking-tight text-balance">{BRAND.tagline}</p>
        <div className="grid gap-3" aria-hidden="true">
          <p className="ms-auto rounded-3xl rounded-ee-lg bg-accent px-5 py-3 text-on-accent">
            {BRAND.suggestions[0]}
          </p>
          <p className="me-auto rounded-3xl rounded-es-lg border border-line bg-raised px-5 py-3">
            It is on its way, and arrives <strong className="font-semibold">tomorrow before noon</strong>.
          </p>
        </div>
      </div>
      <p className="text-sm text-muted">Your conversations are yours alone.</p>
    </section>
  );
}
