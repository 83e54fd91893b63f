#!/bin/sh
# Makes the secrets that docker-compose.yml mounts, in deploy/secrets: a key for the bot service, a session secret, the
# secrets of conversations and of the bot service, a certificate for localhost, and a user whose password it prints.
# Existing files stay as they are.

# Each container has a user of its own, so everybody can read the files. Only you can read the folder.
set -eu
cd "$(dirname "$0")/.."
folder=deploy/secrets
mkdir -p "$folder"
chmod 700 "$folder"

[ -e "$folder/bot_api_keys" ] || openssl rand -hex 24 >"$folder/bot_api_keys"
[ -e "$folder/session_secrets" ] || openssl rand -base64 48 >"$folder/session_secrets"
[ -e "$folder/channel_secret" ] || openssl rand -base64 48 >"$folder/channel_secret"
[ -e "$folder/service_secret" ] || openssl rand -base64 48 >"$folder/service_secret"
[ -e "$folder/tls_key" ] || openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 365 \
  -subj /CN=localhost -addext subjectAltName=DNS:localhost \
  -keyout "$folder/tls_key" -out "$folder/tls_certificate" 2>/dev/null
if [ ! -e "$folder/users" ]; then
  password=$(openssl rand -hex 12)
  [ -e dist/main.js ] || npm run --silent build
  printf '%s' "$password" | USERS_FILE="$folder/users" npx bot-relay user add demo >/dev/null
  echo "Sign in as demo with the password $password"
fi
chmod 644 "$folder"/*
