# the provider modal is ready but for a token, which no check of ours has
# without: pip install ludus-sandboxes
export MODAL_CONFIG_PATH=$PWD/none.toml
echo '["print(1)"]' > script.yaml
if ludus collect code_gen --model scripted:script.yaml --limit 1 --set resources.sandbox.provider=modal --output run 2> said
then exit 1; fi
cat said >&2
grep -q MODAL_TOKEN_ID said
python -c 'import modal; modal.Sandbox.create.aio'
