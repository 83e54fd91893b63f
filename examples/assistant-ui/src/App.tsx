import { Chat, useChat } from '@ai-sdk/react';
import {
  AssistantRuntimeProvider,
  ComposerPrimitive,
  MessagePrimitive,
  type MessageState,
  ThreadPrimitive,
} from '@assistant-ui/react';
import { useAISDKRuntime } from '@assistant-ui/react-ai-sdk';
import { botChatTransport, loadMessages } from 'bot-relay-client/ai-sdk';
import { BotProvider, createBotClient, RelayError, useSession } from 'bot-relay-client/react';
import { useEffect, useState } from 'react';

const client = createBotClient({ bot: 'demo/echo' });
// Outside of all components, so that an answer goes on when they are unmounted.
const chat = new Chat({ id: 'my-chat', transport: botChatTransport(client, { onUserLeft: empty }) });

// The next user must not see it.
function empty() {
  chat.messages = [];
  chat.clearError();
}

export default function App() {
  return (
    <BotProvider client={client}>
      <Entry />
    </BotProvider>
  );
}

function Entry() {
  const { session, error } = useSession();
  if (session) return <Messages key={session.user.id} name={session.user.name} />;
  return session === null ? <SignIn /> : <p>{error ? error.message : 'One moment …'}</p>;
}

function Failure({ error }: { error: Error | undefined }) {
  if (!error) return null;
  return (
    <p role="alert">
      {error.message}
      {error instanceof RelayError && error.requestId && ` Request: ${error.requestId}`}
    </p>
  );
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

/** What was said before, also before a reload: undefined until it is there, or an error. */
function useLoaded() {
  const [loaded, setLoaded] = useState<true | Error>();
  useEffect(() => {
    let isLeft = false;
    const show = (messages: typeof chat.messages) => {
      if (isLeft) return;
      chat.messages = messages;
      setLoaded(true);
    };
    loadMessages(client, chat.id).then(show, setLoaded);
    return () => {
      isLeft = true;
    };
  }, []);
  return loaded;
}

function stateOf({ status }: MessageState) {
  if (status?.type === 'running') return 'streaming';
  if (status?.type !== 'incomplete') return 'done';
  return status.reason === 'cancelled' ? 'stopped' : 'failed';
}

function Messages({ name }: { name: string }) {
  const { error: sessionError, signOut } = useSession();
  const loaded = useLoaded();
  // Once it is there, an answer that was under way goes on.
  const helpers = useChat({ chat, resume: loaded === true });
  const runtime = useAISDKRuntime(helpers);
  if (loaded !== true) return loaded ? <Failure error={loaded} /> : <p>One moment …</p>;
  return (
    <AssistantRuntimeProvider runtime={runtime}>
      <ThreadPrimitive.Root>
        <ul>
          <ThreadPrimitive.Messages>
            {({ message }) => (
              <MessagePrimitive.Root asChild>
                <li data-from={message.role} data-state={stateOf(message)}>
                  <MessagePrimitive.Parts />
                </li>
              </MessagePrimitive.Root>
            )}
          </ThreadPrimitive.Messages>
        </ul>
        <Failure error={helpers.error ?? sessionError} />
        <ComposerPrimitive.Root>
          <label htmlFor="text">Message</label> <ComposerPrimitive.Input id="text" />
          <ComposerPrimitive.Send>Send</ComposerPrimitive.Send>
          <ComposerPrimitive.Cancel>Stop</ComposerPrimitive.Cancel>
          <button type="button" onClick={signOut}>
            Sign out {name}
          </button>
        </ComposerPrimitive.Root>
      </ThreadPrimitive.Root>
    </AssistantRuntimeProvider>
  );
}
