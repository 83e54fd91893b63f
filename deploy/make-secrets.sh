#!/bin/sh
# Makes what docker-compose.yml mounts as secrets, in deploy/secrets: a key for the demo's bot service, a secret
# that signs cookies, a certificate for localhost, and a user whose password it prints. Keeps what is there.
# The files can be read by everybody, because each container has a user of its own, but the folder only by you.
set -eu
cd "$(dirname "$0")/.."
folder=deploy/secrets
mkdir -p "$folder"
chmod 700 "$folder"

[ -e "$folder/bot_api_keys" ] || openssl rand -hex 24 >"$folder/bot_api_keys"
[ -e "$folder/session_secrets" ] || openssl rand -base64 48 >"$folder/session_secrets"
[ -e "$folder/tls_key" ] || openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 365 \
  -subj /CN=localhost -addext subjectAltName=DNS:localhost \
  -keyout "$folder/tls_key" -out "$folder/tls_certificate" 2>/dev/null
if [ ! -e "$folder/users" ]; then
  password=$(openssl rand -hex 12)
  printf '%s' "$password" | USERS_FILE="$folder/users" npm run --silent user -- add demo >/dev/null
  echo "Sign in as demo with the password $password"
fi
chmod 644 "$folder"/*
