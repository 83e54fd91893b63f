import { BotProvider } from 'bot-relay-client/react';
import { Chat } from './chat';

export default function Page() {
  return (
    <BotProvider bot="demo/echo">
      <Chat />
    </BotProvider>
  );
}
