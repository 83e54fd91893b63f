/** The names of the words that `CHAT_FILE` can replace, as the chat has them. */
export const CHAT_WORDS: ReadonlySet<string> = new Set(
  (
    'attach attached allowAlways allowOnce answering askAgain askAgainIn askAgainHint bad ' +
    'code connectionLost conversation copied copy copyAnswer copyId crossSite denied ' +
    'deny empty failedAnswer file files good guest incomplete keys ' +
    'loading message newChat newChatAsk noName notUploaded nothing password provider ' +
    'queued remove requestId saidBot saidYou send signIn signInAsk signOut ' +
    'signedInAs signedOut stop stopped suggestions table tool toolDone toolWants ' +
    'tryAgain uploading uploadsFirst user waiting'
  ).split(' '),
);
