import { BotProvider, type RelayError, textOf, useBot, useSession } from 'bot-relay-client/react';

export default function App() {
  return (
    <BotProvider bot="demo/echo">
      <Chat />
    </BotProvider>
  );
}

function Chat() {
  const { session, error } = useSession();
  if (session) return <Messages name={session.user.name} />;
  return session === null ? <SignIn /> : <p>{error ? error.message : 'One moment …'}</p>;
}

function SignIn() {
  const { error, signIn } = useSession();
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        const form = new FormData(event.currentTarget);
        signIn(String(form.get('name')), String(form.get('password')));
      }}
    >
      <label>
        Name <input name="name" autoComplete="username" required />
      </label>
      <label>
        Password <input name="password" type="password" autoComplete="current-password" required />
      </label>
      <button type="submit">Sign in</button>
      <Failure error={error} />
    </form>
  );
}

function Failure({ error }: { error: RelayError | undefined }) {
  if (!error) return null;
  return (
    <p role="alert">
      {error.message}
      {error.requestId && ` Request: ${error.requestId}`}
    </p>
  );
}

function Messages({ name }: { name: string }) {
  const { messages, status, error, send, stop } = useBot();
  const { error: sessionError, signOut } = useSession();
  const isBusy = status !== 'ready' && status !== 'error';
  return (
    <>
      <ul>
        {messages.map((message) => (
          <li key={message.id} data-from={message.role} data-state={message.state}>
            {textOf(message)}
          </li>
        ))}
      </ul>
      <Failure error={error ?? sessionError} />
      <form
        onSubmit={(event) => {
          event.preventDefault();
          send(String(new FormData(event.currentTarget).get('text')));
          event.currentTarget.reset();
        }}
      >
        <label>
          Message <input name="text" autoComplete="off" required />
        </label>
        <button type="submit" disabled={isBusy}>
          Send
        </button>
        <button type="button" onClick={stop} disabled={!isBusy}>
          Stop
        </button>
        <button type="button" onClick={signOut}>
          Sign out {name}
        </button>
      </form>
    </>
  );
}
