import { BotProvider, textOf, useBot, useSession } from 'bot-relay-client/react';
import { memo, StrictMode, useEffect } from 'react';
import { createRoot, hydrateRoot } from 'react-dom/client';
import { renderToString } from 'react-dom/server';

/** What tests call and read. */
const test = {
  /** The hook's last return value, by the name of the chat. */
  bots: {},
  /** Frames so far. */
  frame: 0,
  /** When each frame began, in ms. */
  frames: [],
  /** For each render of a chat, the frame in which it was. */
  renders: [],
  /** For each render of a row, the id of its message. */
  rows: [],
  /** `bot` are options of the client. */
  mount({ chats = [{}], strict = false, bot } = {}) {
    test.root ??= createRoot(document.getElementById('root'));
    const all = (
      <Bot {...bot}>
        {chats.map((props) => (
          <Chat key={props.name ?? 'chat'} {...props} />
        ))}
      </Bot>
    );
    test.root.render(strict ? <StrictMode>{all}</StrictMode> : all);
  },
  /** Renders it as a server does, and hydrates that. */
  hydrate() {
    const root = document.getElementById('root');
    root.innerHTML = renderToString(
      <Bot>
        <Chat />
      </Bot>,
    );
    test.drawn = root.textContent;
    test.root = hydrateRoot(
      root,
      <Bot>
        <Chat />
      </Bot>,
    );
  },
  /** Answers messages that begin with `own` with these events, without asking the relay. */
  mountWithOwnAnswers(events) {
    test.unmount();
    const headers = { 'Content-Type': 'text/event-stream' };
    const own = (url, init) =>
      init?.body?.includes('"own ') ? Promise.resolve(new Response(events, { headers })) : fetch(url, init);
    test.mount({ bot: { expert: { fetch: own } } });
  },
  unmount() {
    test.root.unmount();
    test.root = undefined;
  },
};
window.test = test;

function countFrames() {
  test.frame = test.frames.push(performance.now());
  requestAnimationFrame(countFrames);
}
countFrames();

function Bot({ children, ...options }) {
  // New objects and functions in each render, as in ordinary components.
  const given = {
    baseUrl: '',
    namespace: 'acme',
    botProviderName: 'helper',
    expert: { fetch: (...call) => fetch(...call) },
  };
  return (
    <BotProvider {...given} {...options}>
      {children}
    </BotProvider>
  );
}

const Row = memo(function Row({ message }) {
  test.rows.push(message.id);
  return (
    <li className={message.role} data-state={message.state}>
      {textOf(message)}
    </li>
  );
});

function sessionText(session) {
  if (session === undefined) return 'unknown';
  return session === null ? 'nobody' : session.user.name;
}

function Chat({ name = 'chat', sayAtOnce, ...options }) {
  const bot = useBot({ onFinish: () => {}, ...options });
  const { error: sessionError, session, ...signing } = useSession();
  test.bots[name] = { ...bot, ...signing };
  test.renders.push(test.frame);
  const { messages, status, send, error = sessionError } = bot;
  useEffect(() => {
    if (sayAtOnce) send(sayAtOnce);
  }, [send, sayAtOnce]);
  return (
    <section id={name}>
      <p className="session">{sessionText(session)}</p>
      <p className="status">{status}</p>
      <p className="error">{error ? `${error.code} ${error.requestId}` : ''}</p>
      <ol>
        {messages.map((message) => (
          <Row key={message.id} message={message} />
        ))}
      </ol>
    </section>
  );
}
