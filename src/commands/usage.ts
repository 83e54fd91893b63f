/** Exit code of sysexits.h: wrong arguments. */
export const EX_USAGE = 64;

/** The usage of the whole program. */
export const USAGE = `Usage: bot-relay                   run the relay
       bot-relay --check-config    check the configuration and stop
       bot-relay check …           prove a deployment from where this runs
       bot-relay user …            maintain the users file
       bot-relay keys [--json]     print the keys of each bot, by fingerprint
       bot-relay channel-id …      print the id of a conversation at the bot service
       bot-relay service …         run the bot service alone, or maintain its keys and data
       bot-relay --help            print this; behind a command, how to use that
       bot-relay --version         print the version
`;
