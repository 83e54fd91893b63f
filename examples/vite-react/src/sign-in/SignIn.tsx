import { useSession } from 'bot-relay-client/react';
import { useEffect, useRef, useState } from 'react';
import { BRAND } from '../brand.ts';
import { MAIN_BUTTON } from '../ui/buttons.ts';
import { Failure } from '../ui/Failure.tsx';
import { HAS_KEYBOARD } from '../ui/has-keyboard.ts';
import { Logo } from '../ui/Logo.tsx';
import { Field } from './Field.tsx';
import { Showcase } from './Showcase.tsx';

/** The first page that a customer sees: with `AUTH_MODE=password`. */
export function SignIn() {
  const { error, signIn } = useSession();
  const [isAsking, setIsAsking] = useState(false);

  const form = useRef<HTMLFormElement>(null);
  useEffect(() => {
    if (HAS_KEYBOARD) form.current?.querySelector('input')?.focus();
  }, []);

  async function submit(data: FormData) {
    setIsAsking(true);
    await signIn(`${data.get('name')}`, `${data.get('password')}`);
    setIsAsking(false);
  }

  return (
    <main className="grid min-h-dvh lg:grid-cols-2">
      <Showcase />
      <form
        ref={form}
        className="m-auto grid w-full max-w-md gap-5 p-6 sm:p-10"
        onSubmit={(event) => {
          event.preventDefault();
          submit(new FormData(event.currentTarget));
        }}
      >
        <Logo className="size-12 lg:hidden" />
        <div className="grid gap-2">
          <h1 className="text-3xl font-semibold tracking-tight">Welcome</h1>
          <p className="text-muted">Sign in to talk with {BRAND.name}.</p>
        </div>
        <Field label="Name" name="name" autoComplete="username" />
        <Field label="Password" name="password" type="password" autoComplete="current-password" />
        <Failure error={error} />
        <button type="submit" className={MAIN_BUTTON} disabled={isAsking}>
          Sign in
        </button>
      </form>
    </main>
  );
}
