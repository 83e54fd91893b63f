/** The names of the words that `CHAT_FILE` can replace, as the chat has them. */
export const CHAT_WORDS: ReadonlySet<string> = new Set(
  (
    'attach attached allowAlways allowOnce answering askAgain askAgainIn askAgainHint bad bot ' +
    'chats chatsNote code connectionLost conversation copied copy copyAnswer copyId crossSite demoUser denied ' +
    'deny empty errorAway errorBusy errorForbidden errorLarge errorLost errorMissing errorPassword ' +
    'errorSignedOut errorSlow failedAnswer file files forgetChat forgetChatAsk good guest incomplete keys ' +
    'loading message newChat newChatAsk noName notCopied notUploaded nothing password provider ' +
    'queued remove requestId saidBot saidYou send signIn signInAsk signOut ' +
    'signedInAs signedOut stop stopped suggestions table tool toolDone toolWants ' +
    'tryAgain tryAgainIn uploading uploadsFirst user waiting'
  ).split(' '),
);
