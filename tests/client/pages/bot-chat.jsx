import { BotChat } from 'bot-relay-client/react';
import { createRef, StrictMode } from 'react';
import { createRoot, hydrateRoot } from 'react-dom/client';
import { renderToString } from 'react-dom/server';

/** What tests call and read. */
const test = {
  ref: createRef(),
  ready: [],
  errors: [],
  signOuts: 0,
  mount(props = {}) {
    test.root ??= createRoot(document.getElementById('root'));
    test.root.render(<Page {...props} />);
  },
  unmount() {
    test.root.unmount();
    test.root = undefined;
  },
  /** Renders it as a server does, and hydrates that. The policy of the page forbids a style in HTML. */
  hydrate() {
    const root = document.getElementById('root');
    root.innerHTML = test.drawn = renderToString(<Page style={undefined} />);
    test.root = hydrateRoot(root, <Page style={undefined} />);
  },
};
window.test = test;

function Page(props) {
  // New functions in each render, as in ordinary components.
  return (
    <StrictMode>
      <BotChat
        bot="acme/helper"
        heading="Help"
        suggestions={['One', 'Two']}
        className="chat"
        style={{ height: '400px' }}
        ref={test.ref}
        onReady={(session) => test.ready.push(session)}
        onError={(error) => test.errors.push(error.message)}
        onSignedOut={() => {
          test.signOuts += 1;
        }}
        {...props}
      />
    </StrictMode>
  );
}
