import { useBot } from 'bot-relay-client/react';
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
  mount({ chats = [{}], strict = false } = {}) {
    test.root ??= createRoot(document.getElementById('root'));
    const all = chats.map((props) => <Chat key={props.name ?? 'chat'} {...props} />);
    test.root.render(strict ? <StrictMode>{all}</StrictMode> : all);
  },
  /** Renders it as a server does, and hydrates that. */
  hydrate() {
    const root = document.getElementById('root');
    root.innerHTML = renderToString(<Chat />);
    test.drawn = root.textContent;
    test.root = hydrateRoot(root, <Chat />);
  },
  /** Answers messages that begin with `own` with these events, without asking the relay. */
  mountWithOwnAnswers(events) {
    test.unmount();
    const headers = { 'Content-Type': 'text/event-stream' };
    const own = (url, init) =>
      init?.body?.includes('"own ') ? Promise.resolve(new Response(events, { headers })) : fetch(url, init);
    test.mount({ chats: [{ fetch: own }] });
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

const Row = memo(function Row({ message }) {
  test.rows.push(message.id);
  return (
    <li className={message.from} data-state={message.state}>
      {message.text}
    </li>
  );
});

function sessionText(session) {
  if (session === undefined) return 'unknown';
  return session === null ? 'nobody' : session.user.name;
}

function Chat({ name = 'chat', sayAtOnce, ...options }) {
  // New objects and functions in each render, as in ordinary components.
  const bot = useBot({
    baseUrl: '',
    namespace: 'acme',
    botProviderName: 'helper',
    fetch: (...call) => fetch(...call),
    ...options,
  });
  test.bots[name] = bot;
  test.renders.push(test.frame);
  const { messages, status, error, session, send } = bot;
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
