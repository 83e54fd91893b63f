import { Chat, useChat } from '@ai-sdk/react';
import { createBotClient } from 'bot-relay-client';
import { botChatTransport, RelayError } from 'bot-relay-client/ai-sdk';
import { StrictMode } from 'react';
import { createRoot } from 'react-dom/client';

const client = createBotClient({ baseUrl: '', namespace: 'acme', botProviderName: 'helper' });
const transport = botChatTransport(client, {
  onUserLeft() {
    chat.messages = [];
  },
});
// Outside of all components: it goes on while none is mounted.
const chat = new Chat({ id: 'my-chat', transport });

/** What tests call and read. */
const test = {
  client,
  chat,
  mount({ strict = false, isShown = true, resume = false, ownChat = false } = {}) {
    test.root ??= createRoot(document.getElementById('root'));
    const options = ownChat ? { id: 'my-chat', transport } : { chat };
    const all = isShown && <Talk {...options} resume={resume} />;
    test.root.render(strict ? <StrictMode>{all}</StrictMode> : all);
  },
};
window.test = test;

function Talk(options) {
  const { messages, status, error } = useChat(options);
  return (
    <>
      <p className="status">{status}</p>
      <p className="error">{error ? `${error instanceof RelayError} ${error.code}` : ''}</p>
      <ol>
        {messages.map(({ id, role, parts }) => (
          <li key={id} className={role}>
            {parts.map((part) => part.text).join('')}
          </li>
        ))}
      </ol>
    </>
  );
}
