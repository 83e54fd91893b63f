/** The usage of the whole program. */
export const USAGE = `Usage: node dist/main.js                   run the relay
       node dist/main.js --check-config    check the configuration and stop
       node dist/main.js user …            maintain the users file
       node dist/main.js keys [--json]     print the keys of each bot, by fingerprint
       node dist/main.js channel-id …      print the id of a conversation at the bot service
       node dist/main.js check …           prove a deployment from where this runs
       node dist/main.js demo-bot …        run the demo's bot service alone
       node dist/main.js --help            print this; behind a command, how to use that
       node dist/main.js --version         print the version
`;
