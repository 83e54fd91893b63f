import {
  BotProvider,
  createBotClient,
  createChannel,
  textOf,
  useBot,
  useSession,
} from 'bot-relay-client/react';
import { StrictMode, Suspense } from 'react';
import { createRoot } from 'react-dom/client';
import { followedSession } from '../../../src/client/session/followed-session.ts';

/** How many listeners the page has for the session and for the channel. */
const counts = { session: 0, channel: 0 };
/** How many times something has subscribed to each, though it has left since. */
const ever = { session: 0, channel: 0 };
const { addEventListener, removeEventListener } = document;
document.addEventListener = function add(type, ...rest) {
  if (type === 'visibilitychange') counts.session += 1;
  addEventListener.call(document, type, ...rest);
};
document.removeEventListener = function remove(type, ...rest) {
  if (type === 'visibilitychange') counts.session -= 1;
  removeEventListener.call(document, type, ...rest);
};

const client = createBotClient({ baseUrl: '', namespace: 'acme', botProviderName: 'helper' });
const OPTIONS = { id: 'one' };

const followed = followedSession(client);
const { subscribe: follow } = followed;
followed.subscribe = (listener) => {
  ever.session += 1;
  return follow(listener);
};

/** The channel that the hook finds, whose subscriptions are counted. */
function counted() {
  const channel = createChannel(client, OPTIONS);
  const { subscribe } = channel;
  channel.subscribe = (listener) => {
    ever.channel += 1;
    counts.channel += 1;
    const leave = subscribe(listener);
    return () => {
      counts.channel -= 1;
      leave();
    };
  };
  return channel;
}

/** What suspends now, by its name, each until its promise resolves. */
const asleep = new Map();

/** What tests call and read. */
const test = {
  counts,
  ever,
  bot: undefined,
  session: undefined,
  channel: counted(),
  isStrict: false,
  mount(isStrict, ...names) {
    test.isStrict = isStrict;
    test.root = createRoot(document.getElementById('root'));
    test.sleep(...names);
  },
  /** Draws again, and has these suspend. */
  sleep(...names) {
    for (const name of names) {
      let wake;
      const promise = new Promise((resolve) => {
        wake = resolve;
      });
      asleep.set(name, { promise, wake });
    }
    const page = <Page tick={test.tick++} />;
    test.root.render(test.isStrict ? <StrictMode>{page}</StrictMode> : page);
  },
  wake() {
    const all = [...asleep.values()];
    asleep.clear();
    for (const { wake } of all) wake();
  },
  /** Whether the client still has the channel. */
  isKept: () => createChannel(client, OPTIONS) === test.channel,
  /** Has it kept for a moment only from now on. */
  unmount() {
    createChannel(client, { ...OPTIONS, expert: { gcMs: 200 } });
    test.root.unmount();
  },
  tick: 0,
};
window.test = test;

/** Suspends while it is asleep, also where React has no `use`. */
function suspend(name) {
  const one = asleep.get(name);
  if (one) throw one.promise;
}

function Sibling() {
  suspend('sibling');
  return <p id="sibling">awake</p>;
}

function Chat() {
  const bot = useBot(OPTIONS);
  const signing = useSession();
  // After the hooks: they have subscribed when it is not drawn for the first time.
  suspend('chat');
  const { session, messages, send } = bot;
  test.bot = { send };
  test.session = signing;
  return (
    <section id="chat">
      <p className="session">{session ? session.user.name : String(session)}</p>
      <p className="user">{signing.session ? signing.session.user.name : String(signing.session)}</p>
      <ol>
        {messages.map((message) => (
          <li key={message.id} className={message.role} data-state={message.state}>
            {textOf(message)}
          </li>
        ))}
      </ol>
    </section>
  );
}

function Page() {
  return (
    <BotProvider client={client}>
      <Suspense fallback={<p id="fallback">waiting</p>}>
        <Chat tick={test.tick} />
        <Sibling tick={test.tick} />
      </Suspense>
    </BotProvider>
  );
}
