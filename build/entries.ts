/**
 * The entries of the client's package, each by the name of its file: `exports` of the package's package.json, the build
 * and the reference have the same.
 */
export const ENTRIES = {
  index: 'index',
  react: 'react',
  element: 'element/bot-chat',
  'ai-sdk': 'ai-sdk/bot-chat-transport',
};
