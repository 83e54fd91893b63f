import { createBotClient, createChannel, type RelayError, textOf } from 'bot-relay-client';
import { createSignal, For, from, Match, Show, Switch } from 'solid-js';

const client = createBotClient({ baseUrl: '', namespace: 'demo', botProviderName: 'echo' });
const channel = createChannel(client);

/** Why the last sign-in or sign-out has failed. */
const [refused, setRefused] = createSignal<RelayError>();

/** A whole chat. */
export function Chat() {
  const chat = from(
    (set) => channel.subscribe(() => set(() => channel.getSnapshot())),
    channel.getSnapshot(),
  );
  return (
    <Switch fallback={<p>{chat().error?.message ?? 'One moment …'}</p>}>
      <Match when={chat().session === null}>
        <SignIn />
      </Match>
      <Match when={chat().session}>
        <ul>
          <For each={chat().messages}>
            {(message) => (
              <li data-from={message.role} data-state={message.state}>
                {textOf(message)}
              </li>
            )}
          </For>
        </ul>
        <Failure error={refused() ?? chat().error} />
        <Composer isBusy={chat().status !== 'ready' && chat().status !== 'error'} />
      </Match>
    </Switch>
  );
}

function Failure(props: { error: RelayError | undefined }) {
  return (
    <Show when={props.error}>
      {(error) => (
        <p role="alert">
          {error().message}
          {error().requestId && ` Request: ${error().requestId}`}
        </p>
      )}
    </Show>
  );
}

function SignIn() {
  const signIn = (event: SubmitEvent & { currentTarget: HTMLFormElement }) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    setRefused(undefined);
    client.signIn(String(form.get('name')), String(form.get('password'))).catch(setRefused);
  };
  return (
    <form onSubmit={signIn}>
      <label>
        Name <input name="name" autocomplete="username" required />
      </label>
      <label>
        Password <input name="password" type="password" autocomplete="current-password" required />
      </label>
      <button type="submit">Sign in</button>
      <Failure error={refused()} />
    </form>
  );
}

function Composer(props: { isBusy: boolean }) {
  const send = (event: SubmitEvent & { currentTarget: HTMLFormElement }) => {
    event.preventDefault();
    channel.send(String(new FormData(event.currentTarget).get('text')));
    event.currentTarget.reset();
  };
  const signOut = () => {
    setRefused(undefined);
    client.signOut().catch(setRefused);
  };
  return (
    <form onSubmit={send}>
      <label>
        Message <input name="text" autocomplete="off" required />
      </label>
      <button type="submit" disabled={props.isBusy}>
        Send
      </button>
      <button type="button" disabled={!props.isBusy} onClick={channel.stop}>
        Stop
      </button>
      <button type="button" onClick={signOut}>
        Sign out
      </button>
    </form>
  );
}
