import { BotProvider, useSession } from 'bot-relay-client/react';
import { BRAND } from './brand.ts';
import { ChatPage } from './ChatPage.tsx';
import { errorText } from './error-text.ts';
import { SignIn } from './sign-in/SignIn.tsx';
import { Logo } from './ui/Logo.tsx';

export default function App() {
  return (
    <BotProvider bot={BRAND.bot}>
      <Entry />
    </BotProvider>
  );
}

/** The chat, or the sign-in; neither until it is known who is signed in. */
function Entry() {
  const { session, error } = useSession();
  if (session) return <ChatPage key={session.user.id} user={session.user} />;
  if (session === null) return <SignIn />;
  return (
    <main className="grid min-h-dvh place-content-center justify-items-center gap-4 p-6 text-center text-muted">
      <Logo className="size-12 motion-safe:animate-pulse" />
      <p>{error ? errorText(error) : 'One moment …'}</p>
    </main>
  );
}
